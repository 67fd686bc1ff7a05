"""Built-in kinds of every server, one row each.

Code that refers to one particular kind imports it from here. Generic code uses the `KindRegistry`
of its server (`onejob.wire.registry`), because kinds are added and removed at run time.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
STATUS_VERBS = ("get", "patch", "update")


@dataclass(frozen=True, slots=True)
class Subresource:
    """Subresource of a kind."""

    name: str
    verbs: tuple[str, ...]
    #: Kind of the body, if it differs from the parent's.
    group: str = ""
    version: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of objects, as it is served and stored."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    #: Storage shared with another kind: events.k8s.io/v1 events are the core events under another
    #: name; the versions of a custom resource share one storage, that of the version without this.
    stored_as: str = field(default="", compare=False)
    #: True if the kind is served for clients only: no component acts on it, or, as for
    #: Deployments, none but a server's.
    stored_only: bool = field(default=False, compare=False)
    #: True if the kind was defined by a CustomResourceDefinition.
    custom: bool = field(default=False, compare=False)
    #: Kind of its lists.
    list_kind: str = ""
    # Computed once, because every write uses these.
    #: Plural with its group, as in error messages and keys: `jobs.batch`.
    resource: str = field(init=False, compare=False, repr=False)
    #: The `Key.resource` under which objects are stored.
    storage: str = field(init=False, compare=False, repr=False)
    api_version: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        resource = f"{self.plural}.{self.group}" if self.group else self.plural
        version = f"{self.group}/{self.version}" if self.group else self.version
        object.__setattr__(self, "list_kind", self.list_kind or f"{self.kind}List")
        object.__setattr__(self, "resource", resource)
        object.__setattr__(self, "storage", self.stored_as or resource)
        object.__setattr__(self, "api_version", version)

    @property
    def strategy(self) -> str:
        """Name of the validation rules for its documents, where versions of one resource differ."""
        if self.custom and self.stored_as:
            return f"{self.plural}.{self.version}.{self.group}"
        return self.resource

    def subresource(self, name: str) -> Subresource | None:
        """Return the subresource of this name; None if there is none."""
        return next((sub for sub in self.subresources if sub.name == name), None)


_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")
_STAGES = {"alpha": 0, "beta": 1, None: 2}


def version_order(version: str) -> tuple[int, int, int, int, str]:
    """Return a sort key: the most stable and newest version first, as discovery prefers them."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return (1, 0, 0, 0, version)
    return (0, -_STAGES[match[2]], -int(match[1]), -int(match[3] or 0), "")


_STATUS = Subresource("status", STATUS_VERBS)
_SCALE = Subresource("scale", STATUS_VERBS, "autoscaling", "v1", "Scale")
_REVIEW = ("create",)
_PROXY_VERBS = ("create", "delete", "get", "patch", "update")


def _stored(
    api_version: str,
    kind: str,
    *short_names: str,
    plural: str = "",
    namespaced: bool = True,
    status: bool = False,
    scale: bool = False,
    categories: tuple[str, ...] = (),
    acts: bool = False,
) -> Kind:
    """Return a kind without rules for its status; without `acts`, no component here acts on it."""
    group, _, version = api_version.rpartition("/")
    return Kind(
        group,
        version,
        kind,
        plural or f"{kind.lower()}s",
        kind.lower(),
        namespaced=namespaced,
        short_names=short_names,
        categories=categories,
        subresources=(*((_SCALE,) if scale else ()), *((_STATUS,) if status else ())),
        stored_only=not acts,
    )


_ADMISSION = "admissionregistration.k8s.io/v1"
_EXTENSIONS = ("api-extensions",)

#: Kinds that no component of a run acts on: objects of clients are accepted, stored and watched.
STORED_KINDS: Sequence[Kind] = (
    _stored("v1", "Endpoints", "ep", plural="endpoints"),
    _stored("v1", "LimitRange", "limits"),
    _stored("v1", "PersistentVolume", "pv", namespaced=False, status=True, acts=True),
    _stored("v1", "PersistentVolumeClaim", "pvc", status=True, acts=True),
    _stored("v1", "PodTemplate"),
    _stored("v1", "ResourceQuota", "quota", status=True),
    _stored("apiregistration.k8s.io/v1", "APIService", namespaced=False, status=True,
            categories=_EXTENSIONS),
    _stored("apps/v1", "ControllerRevision"),
    _stored("apps/v1", "DaemonSet", "ds", status=True, categories=("all",)),
    _stored("apps/v1", "Deployment", "deploy", status=True, scale=True, categories=("all",)),
    _stored("apps/v1", "ReplicaSet", "rs", status=True, scale=True, categories=("all",)),
    _stored("apps/v1", "StatefulSet", "sts", status=True, categories=("all",)),
    _stored("autoscaling/v2", "HorizontalPodAutoscaler", "hpa", status=True, categories=("all",)),
    _stored("networking.k8s.io/v1", "Ingress", "ing", plural="ingresses", status=True),
    _stored("networking.k8s.io/v1", "NetworkPolicy", "netpol", plural="networkpolicies"),
    _stored("policy/v1", "PodDisruptionBudget", "pdb", status=True),
    _stored("resource.k8s.io/v1", "DeviceClass", plural="deviceclasses", namespaced=False),
    _stored("resource.k8s.io/v1", "ResourceClaim", status=True),
    _stored("resource.k8s.io/v1", "ResourceClaimTemplate"),
    _stored("resource.k8s.io/v1", "ResourceSlice", namespaced=False),
    _stored("storage.k8s.io/v1", "StorageClass", "sc", plural="storageclasses", namespaced=False,
            acts=True),
    _stored(_ADMISSION, "MutatingAdmissionPolicy", plural="mutatingadmissionpolicies",
            namespaced=False, categories=_EXTENSIONS),
    _stored(_ADMISSION, "MutatingAdmissionPolicyBinding", namespaced=False,
            categories=_EXTENSIONS),
    _stored(_ADMISSION, "MutatingWebhookConfiguration", namespaced=False, categories=_EXTENSIONS),
    _stored(_ADMISSION, "ValidatingAdmissionPolicy", plural="validatingadmissionpolicies",
            namespaced=False, status=True, categories=_EXTENSIONS),
    _stored(_ADMISSION, "ValidatingAdmissionPolicyBinding", namespaced=False,
            categories=_EXTENSIONS),
    _stored(_ADMISSION, "ValidatingWebhookConfiguration", namespaced=False,
            categories=_EXTENSIONS),
    _stored("scheduling.k8s.io/v1", "PriorityClass", "pc", plural="priorityclasses",
            namespaced=False),
    _stored("discovery.k8s.io/v1", "EndpointSlice"),
    _stored("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", namespaced=False, status=True),
    _stored("flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration", namespaced=False,
            status=True),
    _stored("node.k8s.io/v1", "RuntimeClass", plural="runtimeclasses", namespaced=False),
)  # fmt: skip

#: Kinds of gang scheduling, served with the feature gate GenericWorkload.
WORKLOAD_KINDS: Sequence[Kind] = (
    _stored("scheduling.k8s.io/v1beta1", "PodGroup", status=True),
    _stored("scheduling.k8s.io/v1beta1", "Workload"),
)

KINDS: Sequence[Kind] = (
    Kind(
        "", "v1", "Namespace", "namespaces", "namespace", namespaced=False, short_names=("ns",),
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        subresources=(_STATUS, Subresource("finalize", ("update",))),
    ),
    Kind(
        "", "v1", "Pod", "pods", "pod", short_names=("po",), categories=("all",),
        subresources=(
            Subresource("attach", ("create", "get"), kind="PodAttachOptions"),
            Subresource("binding", ("create",), kind="Binding"),
            Subresource("ephemeralcontainers", STATUS_VERBS),
            Subresource("eviction", ("create",), "policy", "v1", "Eviction"),
            Subresource("exec", ("create", "get"), kind="PodExecOptions"),
            Subresource("log", ("get",)),
            Subresource("portforward", ("create", "get"), kind="PodPortForwardOptions"),
            Subresource("proxy", _PROXY_VERBS, kind="PodProxyOptions"),
            Subresource("resize", STATUS_VERBS),
            _STATUS,
        ),
    ),
    Kind("", "v1", "Binding", "bindings", "binding", verbs=("create",)),
    Kind("", "v1", "Event", "events", "event", short_names=("ev",)),
    Kind("", "v1", "ConfigMap", "configmaps", "configmap", short_names=("cm",)),
    Kind("", "v1", "Secret", "secrets", "secret"),
    Kind(
        "", "v1", "ServiceAccount", "serviceaccounts", "serviceaccount", short_names=("sa",),
        subresources=(
            Subresource("token", ("create",), "authentication.k8s.io", "v1", "TokenRequest"),
        ),
    ),
    Kind(
        "", "v1", "Service", "services", "service", short_names=("svc",), categories=("all",),
        subresources=(Subresource("proxy", _PROXY_VERBS, kind="ServiceProxyOptions"), _STATUS),
    ),
    Kind(
        "", "v1", "Node", "nodes", "node", namespaced=False, short_names=("no",),
        subresources=(_STATUS,),
    ),
    Kind(
        "", "v1", "ReplicationController", "replicationcontrollers", "replicationcontroller",
        short_names=("rc",), verbs=("get", "list", "watch"),
    ),
    Kind(
        "batch", "v1", "CronJob", "cronjobs", "cronjob", short_names=("cj",),
        categories=("all",), subresources=(_STATUS,),
    ),
    Kind(
        "batch", "v1", "Job", "jobs", "job", categories=("all",),
        subresources=(
            Subresource("history", ("get",)),
            Subresource("outputs", ("get",)),
            Subresource("pods", ("get",), "", "v1", "PodList"),
            Subresource("progress", ("get",)),
            _STATUS,
        ),
    ),
    Kind(
        "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions",
        "customresourcedefinition", namespaced=False, short_names=("crd", "crds"),
        categories=("api-extensions",), subresources=(_STATUS,),
    ),
    Kind(
        "certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests",
        "certificatesigningrequest", namespaced=False, short_names=("csr",),
        subresources=(Subresource("approval", STATUS_VERBS), _STATUS),
    ),
    Kind("coordination.k8s.io", "v1", "Lease", "leases", "lease"),
    Kind(
        "onejob.dev", "v1alpha1", "CronWorkflow", "cronworkflows", "cronworkflow",
        short_names=("cwf",), categories=("all",), subresources=(_STATUS,),
    ),
    Kind(
        "onejob.dev", "v1alpha1", "Workflow", "workflows", "workflow", short_names=("wf",),
        categories=("all",), subresources=(_STATUS,),
    ),
    Kind(
        "events.k8s.io", "v1", "Event", "events", "event", short_names=("ev",),
        stored_as="events",
    ),
    Kind(
        "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews",
        "selfsubjectreview", namespaced=False, verbs=_REVIEW,
    ),
    Kind(
        "authentication.k8s.io", "v1", "TokenReview", "tokenreviews", "tokenreview",
        namespaced=False, verbs=_REVIEW,
    ),
    Kind(
        "authorization.k8s.io", "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews",
        "localsubjectaccessreview", verbs=_REVIEW,
    ),
    Kind(
        "authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews",
        "selfsubjectaccessreview", namespaced=False, verbs=_REVIEW,
    ),
    Kind(
        "authorization.k8s.io", "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews",
        "selfsubjectrulesreview", namespaced=False, verbs=_REVIEW,
    ),
    Kind(
        "rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", "clusterrole",
        namespaced=False,
    ),
    Kind(
        "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings",
        "clusterrolebinding", namespaced=False,
    ),
    Kind("rbac.authorization.k8s.io", "v1", "Role", "roles", "role"),
    Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", "rolebinding"),
    Kind(
        "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews",
        "subjectaccessreview", namespaced=False, verbs=_REVIEW,
    ),
    *STORED_KINDS,
)  # fmt: skip

#: Kinds that are served but never stored: they are measured on request.
METRICS_GROUP = "metrics.k8s.io"
MEASURED_KINDS: Sequence[Kind] = (
    Kind(
        METRICS_GROUP, "v1beta1", "NodeMetrics", "nodes", "", namespaced=False,
        verbs=("get", "list"),
    ),
    Kind(METRICS_GROUP, "v1beta1", "PodMetrics", "pods", "", verbs=("get", "list")),
)  # fmt: skip

BY_RESOURCE = {kind.resource: kind for kind in KINDS}
BY_KIND = {(kind.api_version, kind.kind): kind for kind in KINDS}
