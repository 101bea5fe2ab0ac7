"""The deterministic simulator: a node, its disk, its network and its clients in one process, from one seed."""
