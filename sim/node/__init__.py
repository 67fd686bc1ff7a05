"""Machine with a simulated kernel, on which the production supervisor runs.

`kernel.py` has processes, pids and signals, `descriptors.py` pipes, sockets and epoll, `files.py`
the journal file on a disk that is full, writes short or loses power, `timeline.py` the time that
continues while no control plane runs. `system_calls.py` replaces the real calls by these,
`supervisors.py` runs supervisors and kills them at any call, `machine.py` is the whole machine, and
`runtime.py` the production runtime of a control plane, which is connected to its supervisor by
`wire.py`.
"""
