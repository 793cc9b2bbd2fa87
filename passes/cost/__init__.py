"""The cost model: flops, bytes and seconds of operations, and the memory that tasks take."""
