"""What a control plane is built from, one module per capability.

`parts` has the parts that all capabilities share and through which they register; `controllers`,
`job_admission`, `dynamic_admission` and `local_node` build the capabilities; `settings` has the
values that select and configure them. `onejob.control_plane` starts and stops the whole.
"""
