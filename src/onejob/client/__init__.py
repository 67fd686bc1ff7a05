"""API client: the interface `base.Client`, an in-process implementation and one over HTTPS.

Controllers, the node agent and commands use the API only through this interface, so they run
unchanged against a real cluster. `kubeconfig` finds a server's address and trust anchors,
`credentials` provides and renews tokens and client certificates.
"""
