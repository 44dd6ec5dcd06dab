"""The shared scheduling core: arrays in, arrays out; numpy and scipy only."""
