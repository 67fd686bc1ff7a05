// What a real Kubernetes keeps its objects in: see README.md in the folder above.
module onejob.dev/upstream/etcd

go 1.26.0

require go.etcd.io/etcd/server/v3 v3.7.3
