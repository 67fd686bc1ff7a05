"""The client interface (`base.Client`) and its two implementations: in this process and over HTTPS.

Controllers, the node agent and commands use the API only through it, so they run unchanged against
a real cluster. `kubeconfig` and `credentials` say where a server is and how to log in to it.
"""
