#!/bin/sh
# onejob @VERSION@ as a single file: this script, then a ZIP archive of wheels. The first start unpacks the
# wheels for the Python that it finds; later starts run that copy without reading the archive.
cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}
folder=$cache/onejob/@KEY@
if [ -x "$folder/bin/python" ] && [ -O "$folder" ]; then
    exec "$folder/bin/python" "$folder/bin/onejob" "$@"
fi
refuse() { echo "error: $1" >&2; exit 2; }
machine="$(uname -s) $(uname -m)"
[ "$machine" = "Linux x86_64" ] \
    || refuse "this file runs on Linux x86_64, not on $machine (install the wheel with pip instead)"
supported='import sys; v = sys.version_info; sys.exit(not (sys.implementation.name == "cpython" and (3, 11) <= v[:2] <= (3, 13)))'
for python in ${ONEJOB_PYTHON:+"$ONEJOB_PYTHON"} python3 python3.13 python3.12 python3.11; do
    if "$python" -I -c "$supported" 2> /dev/null; then
        case $0 in */*) self=$0 ;; *) self=$(command -v -- "$0") ;; esac
        exec "$python" -I "$self" "$folder" "$@"
    fi
done
refuse "onejob needs CPython 3.11, 3.12 or 3.13 on the PATH (or its path in ONEJOB_PYTHON)"
