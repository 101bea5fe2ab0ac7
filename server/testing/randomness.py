"""Random sources that follow from one seed, whatever PYTHONHASHSEED is."""

import random


class SeedSource:
    """Makes independent random streams by name: a new user of one stream does not shift the others."""

    def __init__(self, seed: int | str) -> None:
        self.seed = seed

    def stream(self, name: str) -> random.Random:
        """The stream of `name`: the same for the same seed and name. `random.Random` hashes string seeds by SHA-512."""
        return random.Random(f"{self.seed}/{name}")
