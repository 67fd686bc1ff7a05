"""Output directories and progress files of Pods.

<data dir>/outputs/<uid>/pod.json   the Pod that they belong to
<data dir>/outputs/<uid>/files/     the directory that containers write to
<data dir>/outputs/<uid>/progress   progress lines
<data dir>/outputs/<uid>/deleted    exists once the Pod is deleted; its age counts for the retention

The folders are not below those of Pods, so that nothing has to be moved when a Pod ends: outputs
survive a crash at any moment.
"""
