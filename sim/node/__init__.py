"""A machine with a simulated kernel, on which the production supervisor runs.

`kernel.py` has processes, pids and signals, `descriptors.py` pipes, sockets and epoll, `files.py`
the journal's file on a disk that is full, short of breath or loses power, `timeline.py` the time
that goes on while no control plane runs. `system_calls.py` puts them in the place of the real ones,
`supervisors.py` runs supervisors and kills them at any call, `machine.py` is the whole machine, and
`runtime.py` the production runtime of a control plane that talks to its supervisor over `wire.py`.
"""
