"""Record batches: read as views over bytes, built, filtered and compressed. What a log does with them is `log`'s."""
