"""What a user imports to test against kraftlog: a cluster inside a test, the simulator and its fakes."""
