"""The decisions: objects and a time in, a plan out. No I/O, no clock, no asyncio."""
