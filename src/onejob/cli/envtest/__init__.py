"""Stand-ins for the programs that controller-runtime's envtest starts: kube-apiserver and etcd."""
