"""The field numbers of the Kubernetes protobuf messages that clients send and are sent.

One message per block: its name, then its fields in the order of their numbers, counted from 1.
`-` is a number not in use; `name*` a field that is a pointer in Go, so that an explicit zero
counts; `&message` a message whose fields stand directly in this one's JSON. Types are not repeated
here: a JSON field's shape in the schema tells how it is written on the wire.
"""

from typing import Final

TABLE: Final = """\
authentication.v1.BoundObjectReference
  kind apiVersion name uid
authentication.v1.SelfSubjectReview
  metadata status
authentication.v1.SelfSubjectReviewStatus
  userInfo
authentication.v1.TokenRequest
  metadata spec status
authentication.v1.TokenRequestSpec
  audiences - boundObjectRef expirationSeconds* attestations
authentication.v1.TokenRequestStatus
  token expirationTimestamp
authentication.v1.TokenReview
  metadata spec status
authentication.v1.TokenReviewSpec
  token audiences
authentication.v1.TokenReviewStatus
  authenticated user error audiences
authentication.v1.UserInfo
  username uid groups extra
authorization.v1.FieldSelectorAttributes
  rawSelector requirements
authorization.v1.LabelSelectorAttributes
  rawSelector requirements
authorization.v1.LocalSubjectAccessReview
  metadata spec status
authorization.v1.NonResourceAttributes
  path verb
authorization.v1.NonResourceRule
  verbs nonResourceURLs
authorization.v1.ResourceAttributes
  namespace verb group version resource subresource name fieldSelector labelSelector
authorization.v1.ResourceRule
  verbs apiGroups resources resourceNames
authorization.v1.SelfSubjectAccessReview
  metadata spec status
authorization.v1.SelfSubjectAccessReviewSpec
  resourceAttributes nonResourceAttributes
authorization.v1.SelfSubjectRulesReview
  metadata spec status
authorization.v1.SelfSubjectRulesReviewSpec
  namespace
authorization.v1.SubjectAccessReview
  metadata spec status
authorization.v1.SubjectAccessReviewSpec
  resourceAttributes nonResourceAttributes user groups extra uid
authorization.v1.SubjectAccessReviewStatus
  allowed reason evaluationError denied
authorization.v1.SubjectRulesReviewStatus
  resourceRules nonResourceRules incomplete evaluationError
batch.v1.CronJob
  metadata spec status
batch.v1.CronJobSpec
  schedule startingDeadlineSeconds* concurrencyPolicy suspend* jobTemplate
  successfulJobsHistoryLimit* failedJobsHistoryLimit* timeZone*
batch.v1.CronJobStatus
  active - - lastScheduleTime lastSuccessfulTime
batch.v1.Job
  metadata spec status
batch.v1.JobCondition
  type status lastProbeTime lastTransitionTime reason message
batch.v1.JobSchedulingConfiguration
  schedulingPolicy schedulingConstraints disruptionMode resourceClaims
batch.v1.JobSpec
  parallelism* completions* activeDeadlineSeconds* selector manualSelector* template
  backoffLimit* ttlSecondsAfterFinished* completionMode* suspend* podFailurePolicy
  backoffLimitPerIndex* maxFailedIndexes* podReplacementPolicy* managedBy* successPolicy
  scheduling
batch.v1.JobStatus
  conditions startTime completionTime active succeeded failed completedIndexes
  uncountedTerminatedPods ready* failedIndexes* terminating*
batch.v1.JobTemplateSpec
  metadata spec
batch.v1.PodFailurePolicy
  rules
batch.v1.PodFailurePolicyOnExitCodesRequirement
  containerName* operator values
batch.v1.PodFailurePolicyOnPodConditionsPattern
  type status*
batch.v1.PodFailurePolicyRule
  action onExitCodes onPodConditions
batch.v1.SuccessPolicy
  rules
batch.v1.SuccessPolicyRule
  succeededIndexes* succeededCount*
batch.v1.UncountedTerminatedPods
  succeeded failed
coordination.v1.Lease
  metadata spec
coordination.v1.LeaseSpec
  holderIdentity* leaseDurationSeconds* acquireTime renewTime leaseTransitions* strategy*
  preferredHolder*
core.v1.AWSElasticBlockStoreVolumeSource
  volumeID fsType partition readOnly
core.v1.Affinity
  nodeAffinity podAffinity podAntiAffinity
core.v1.AppArmorProfile
  type localhostProfile*
core.v1.AttachedVolume
  name devicePath
core.v1.AzureDiskVolumeSource
  diskName diskURI cachingMode* fsType* readOnly* kind*
core.v1.AzureFileVolumeSource
  secretName shareName readOnly
core.v1.Binding
  metadata target
core.v1.CSIVolumeSource
  driver readOnly* fsType* volumeAttributes nodePublishSecretRef
core.v1.Capabilities
  add drop
core.v1.CephFSVolumeSource
  monitors path user secretFile secretRef readOnly
core.v1.CinderVolumeSource
  volumeID fsType readOnly secretRef
core.v1.ClientIPConfig
  timeoutSeconds*
core.v1.ClusterTrustBundleProjection
  name* signerName* labelSelector path optional* user
core.v1.ConfigMap
  metadata data binaryData immutable*
core.v1.ConfigMapEnvSource
  &core.v1.LocalObjectReference optional*
core.v1.ConfigMapKeySelector
  &core.v1.LocalObjectReference key optional*
core.v1.ConfigMapNodeConfigSource
  namespace name uid resourceVersion kubeletConfigKey
core.v1.ConfigMapProjection
  &core.v1.LocalObjectReference items - optional*
core.v1.ConfigMapVolumeSource
  &core.v1.LocalObjectReference items defaultMode* optional* defaultUser*
core.v1.Container
  name image command args workingDir ports env resources volumeMounts livenessProbe
  readinessProbe lifecycle terminationMessagePath imagePullPolicy securityContext stdin
  stdinOnce tty envFrom terminationMessagePolicy volumeDevices startupProbe resizePolicy
  restartPolicy* restartPolicyRules
core.v1.ContainerExtendedResourceRequest
  containerName resourceName requestName
core.v1.ContainerImage
  names sizeBytes
core.v1.ContainerPort
  name hostPort containerPort protocol hostIP
core.v1.ContainerResizePolicy
  resourceName restartPolicy
core.v1.ContainerRestartRule
  action exitCodes
core.v1.ContainerRestartRuleOnExitCodes
  operator values
core.v1.ContainerState
  waiting running terminated
core.v1.ContainerStateRunning
  startedAt
core.v1.ContainerStateTerminated
  exitCode signal reason message startedAt finishedAt containerID
core.v1.ContainerStateWaiting
  reason message
core.v1.ContainerStatus
  name state lastState ready restartCount image imageID containerID started* allocatedResources
  resources volumeMounts user allocatedResourcesStatus stopSignal
core.v1.ContainerUser
  linux
core.v1.DaemonEndpoint
  Port
core.v1.DownwardAPIProjection
  items
core.v1.DownwardAPIVolumeFile
  path fieldRef resourceFieldRef mode* user
core.v1.DownwardAPIVolumeSource
  items defaultMode* defaultUser*
core.v1.EmptyDirVolumeSource
  medium sizeLimit* mode
core.v1.EnvFromSource
  prefix configMapRef secretRef
core.v1.EnvVar
  name value valueFrom
core.v1.EnvVarSource
  fieldRef resourceFieldRef configMapKeyRef secretKeyRef fileKeyRef
core.v1.EphemeralContainer
  &core.v1.EphemeralContainerCommon targetContainerName
core.v1.EphemeralContainerCommon
  name image command args workingDir ports env resources volumeMounts livenessProbe
  readinessProbe lifecycle terminationMessagePath imagePullPolicy securityContext stdin
  stdinOnce tty envFrom terminationMessagePolicy volumeDevices startupProbe resizePolicy
  restartPolicy* restartPolicyRules
core.v1.EphemeralVolumeSource
  volumeClaimTemplate
core.v1.Event
  metadata involvedObject reason message source firstTimestamp lastTimestamp count type
  eventTime series action related reportingComponent reportingInstance
core.v1.EventSeries
  count lastObservedTime
core.v1.EventSource
  component host
core.v1.EvictionResponder
  name priority
core.v1.ExecAction
  command
core.v1.FCVolumeSource
  targetWWNs lun* fsType readOnly wwids
core.v1.FileKeySelector
  volumeName path key optional*
core.v1.FlexVolumeSource
  driver fsType secretRef readOnly options
core.v1.FlockerVolumeSource
  datasetName datasetUUID
core.v1.GCEPersistentDiskVolumeSource
  pdName fsType partition readOnly
core.v1.GRPCAction
  port service* mode
core.v1.GitRepoVolumeSource
  repository revision directory
core.v1.GlusterfsVolumeSource
  endpoints path readOnly
core.v1.HTTPGetAction
  path port host scheme httpHeaders protocol
core.v1.HTTPHeader
  name value
core.v1.HostAlias
  ip hostnames
core.v1.HostIP
  ip
core.v1.HostPathVolumeSource
  path type*
core.v1.ISCSIVolumeSource
  targetPortal iqn lun iscsiInterface fsType readOnly portals chapAuthDiscovery - secretRef
  chapAuthSession initiatorName*
core.v1.ImageVolumeSource
  reference pullPolicy
core.v1.ImageVolumeStatus
  imageRef
core.v1.KeyToPath
  key path mode* user*
core.v1.Lifecycle
  postStart preStop stopSignal*
core.v1.LifecycleHandler
  exec httpGet tcpSocket sleep
core.v1.LinuxContainerUser
  uid gid supplementalGroups
core.v1.LoadBalancerIngress
  ip hostname ipMode* ports
core.v1.LoadBalancerStatus
  ingress
core.v1.LocalObjectReference
  name
core.v1.NFSVolumeSource
  server path readOnly
core.v1.Namespace
  metadata spec status
core.v1.NamespaceCondition
  type status - lastTransitionTime reason message
core.v1.NamespaceSpec
  finalizers
core.v1.NamespaceStatus
  phase conditions
core.v1.Node
  metadata spec status
core.v1.NodeAddress
  type address
core.v1.NodeAffinity
  requiredDuringSchedulingIgnoredDuringExecution
  preferredDuringSchedulingIgnoredDuringExecution
core.v1.NodeAllocatableMappedResources
  name quantity
core.v1.NodeAllocatableOverheadResources
  name perPod perContainer
core.v1.NodeAllocatableResourceClaimStatus
  resourceClaimName containers - mapping overhead
core.v1.NodeCondition
  type status lastHeartbeatTime lastTransitionTime reason message
core.v1.NodeConfigSource
  - configMap
core.v1.NodeConfigStatus
  assigned active lastKnownGood error
core.v1.NodeDaemonEndpoints
  kubeletEndpoint
core.v1.NodeFeatures
  supplementalGroupsPolicy
core.v1.NodePodPreemptionPolicy
  disableResizePreemption
core.v1.NodeRuntimeHandler
  name features
core.v1.NodeRuntimeHandlerFeatures
  recursiveReadOnlyMounts userNamespaces
core.v1.NodeSelector
  nodeSelectorTerms
core.v1.NodeSelectorRequirement
  key operator values
core.v1.NodeSelectorTerm
  matchExpressions matchFields
core.v1.NodeSpec
  podCIDR externalID providerID unschedulable taints configSource podCIDRs podPreemptionPolicy
core.v1.NodeStatus
  capacity allocatable phase conditions addresses daemonEndpoints nodeInfo images volumesInUse
  volumesAttached config runtimeHandlers features declaredFeatures
core.v1.NodeSwapStatus
  capacity
core.v1.NodeSystemInfo
  machineID systemUUID bootID kernelVersion osImage containerRuntimeVersion kubeletVersion
  kubeProxyVersion operatingSystem architecture swap runningInUserNamespace
core.v1.ObjectFieldSelector
  apiVersion fieldPath
core.v1.ObjectReference
  kind namespace name uid apiVersion resourceVersion fieldPath
core.v1.PersistentVolumeClaimSpec
  accessModes resources volumeName selector storageClassName* volumeMode* dataSource
  dataSourceRef volumeAttributesClassName*
core.v1.PersistentVolumeClaimTemplate
  metadata spec
core.v1.PersistentVolumeClaimVolumeSource
  claimName readOnly
core.v1.PhotonPersistentDiskVolumeSource
  pdID fsType
core.v1.Pod
  metadata spec status
core.v1.PodAffinity
  requiredDuringSchedulingIgnoredDuringExecution
  preferredDuringSchedulingIgnoredDuringExecution
core.v1.PodAffinityTerm
  labelSelector namespaces topologyKey namespaceSelector matchLabelKeys mismatchLabelKeys
core.v1.PodAntiAffinity
  requiredDuringSchedulingIgnoredDuringExecution
  preferredDuringSchedulingIgnoredDuringExecution
core.v1.PodCertificateProjection
  signerName keyType maxExpirationSeconds credentialBundlePath keyPath certificateChainPath
  userAnnotations user
core.v1.PodCondition
  type status lastProbeTime lastTransitionTime reason message observedGeneration
core.v1.PodDNSConfig
  nameservers searches options
core.v1.PodDNSConfigOption
  name value*
core.v1.PodExtendedResourceClaimStatus
  requestMappings resourceClaimName
core.v1.PodIP
  ip
core.v1.PodOS
  name
core.v1.PodReadinessGate
  conditionType
core.v1.PodResourceClaim
  name - resourceClaimName* resourceClaimTemplateName*
core.v1.PodResourceClaimStatus
  name resourceClaimName*
core.v1.PodSchedulingGate
  name
core.v1.PodSchedulingGroup
  podGroupName
core.v1.PodSecurityContext
  seLinuxOptions runAsUser* runAsNonRoot* supplementalGroups fsGroup* runAsGroup* sysctls
  windowsOptions fsGroupChangePolicy* seccompProfile appArmorProfile supplementalGroupsPolicy*
  seLinuxChangePolicy*
core.v1.PodSpec
  volumes containers restartPolicy terminationGracePeriodSeconds* activeDeadlineSeconds*
  dnsPolicy nodeSelector serviceAccountName serviceAccount nodeName hostNetwork hostPID hostIPC
  securityContext imagePullSecrets hostname subdomain affinity schedulerName initContainers
  automountServiceAccountToken* tolerations hostAliases priorityClassName priority* dnsConfig
  shareProcessNamespace* readinessGates runtimeClassName* enableServiceLinks* preemptionPolicy*
  overhead topologySpreadConstraints ephemeralContainers setHostnameAsFQDN* os hostUsers*
  schedulingGates resourceClaims resources hostnameOverride* - schedulingGroup
  evictionResponders
core.v1.PodStatus
  phase conditions message reason hostIP podIP startTime containerStatuses qosClass
  initContainerStatuses nominatedNodeName podIPs ephemeralContainerStatuses resize
  resourceClaimStatuses hostIPs observedGeneration extendedResourceClaimStatus
  allocatedResources resources nodeAllocatableResourceClaimStatuses volumeHealth
core.v1.PodTemplateSpec
  metadata spec
core.v1.PodVolumeHealth
  name healthConditions lastTransitionTime
core.v1.PortStatus
  port protocol error*
core.v1.PortworxVolumeSource
  volumeID fsType readOnly
core.v1.PreferredSchedulingTerm
  weight preference
core.v1.Probe
  &core.v1.ProbeHandler initialDelaySeconds timeoutSeconds periodSeconds successThreshold
  failureThreshold terminationGracePeriodSeconds*
core.v1.ProbeHandler
  exec httpGet tcpSocket grpc
core.v1.ProjectedVolumeSource
  sources defaultMode* defaultUser*
core.v1.QuobyteVolumeSource
  registry volume readOnly user group tenant
core.v1.RBDVolumeSource
  monitors image fsType pool user keyring secretRef readOnly
core.v1.ResourceClaim
  name request
core.v1.ResourceFieldSelector
  containerName resource divisor*
core.v1.ResourceHealth
  resourceID health - - - message
core.v1.ResourceRequirements
  limits requests claims
core.v1.ResourceStatus
  name resources
core.v1.SELinuxOptions
  user role type level
core.v1.ScaleIOVolumeSource
  gateway system secretRef sslEnabled protectionDomain storagePool storageMode volumeName
  fsType readOnly
core.v1.SeccompProfile
  type localhostProfile*
core.v1.Secret
  metadata data type stringData immutable*
core.v1.SecretEnvSource
  &core.v1.LocalObjectReference optional*
core.v1.SecretKeySelector
  &core.v1.LocalObjectReference key optional*
core.v1.SecretProjection
  &core.v1.LocalObjectReference items - optional*
core.v1.SecretVolumeSource
  secretName items defaultMode* optional* defaultUser*
core.v1.SecurityContext
  capabilities privileged* seLinuxOptions runAsUser* runAsNonRoot* readOnlyRootFilesystem*
  allowPrivilegeEscalation* runAsGroup* procMount* windowsOptions seccompProfile
  appArmorProfile
core.v1.Service
  metadata spec status
core.v1.ServiceAccount
  metadata secrets imagePullSecrets automountServiceAccountToken*
core.v1.ServiceAccountTokenProjection
  audience expirationSeconds* path user
core.v1.ServicePort
  name protocol port targetPort nodePort appProtocol*
core.v1.ServiceSpec
  ports selector clusterIP type externalIPs - sessionAffinity loadBalancerIP
  loadBalancerSourceRanges externalName externalTrafficPolicy healthCheckNodePort
  publishNotReadyAddresses sessionAffinityConfig - - ipFamilyPolicy* clusterIPs ipFamilies
  allocateLoadBalancerNodePorts* loadBalancerClass* internalTrafficPolicy* trafficDistribution*
core.v1.ServiceStatus
  loadBalancer conditions
core.v1.SessionAffinityConfig
  clientIP
core.v1.SleepAction
  seconds
core.v1.StorageOSVolumeSource
  volumeName volumeNamespace fsType readOnly secretRef
core.v1.Sysctl
  name value
core.v1.TCPSocketAction
  port host
core.v1.Taint
  key value effect timeAdded
core.v1.Toleration
  key operator value effect tolerationSeconds*
core.v1.TopologySpreadConstraint
  maxSkew topologyKey whenUnsatisfiable labelSelector minDomains* nodeAffinityPolicy*
  nodeTaintsPolicy* matchLabelKeys
core.v1.TypedLocalObjectReference
  apiGroup* kind name
core.v1.TypedObjectReference
  apiGroup* kind name namespace*
core.v1.Volume
  name &core.v1.VolumeSource
core.v1.VolumeDevice
  name devicePath
core.v1.VolumeHealthCondition
  status reason message
core.v1.VolumeMount
  name readOnly mountPath subPath mountPropagation* subPathExpr recursiveReadOnly*
  bindMountOptions
core.v1.VolumeMountStatus
  name mountPath readOnly recursiveReadOnly* volumeStatus
core.v1.VolumeProjection
  secret downwardAPI configMap serviceAccountToken clusterTrustBundle podCertificate
core.v1.VolumeResourceRequirements
  limits requests
core.v1.VolumeSource
  hostPath emptyDir gcePersistentDisk awsElasticBlockStore gitRepo secret nfs iscsi glusterfs
  persistentVolumeClaim rbd flexVolume cinder cephfs flocker downwardAPI fc azureFile configMap
  vsphereVolume quobyte azureDisk photonPersistentDisk portworxVolume scaleIO projected
  storageos csi ephemeral image
core.v1.VolumeStatus
  image
core.v1.VsphereVirtualDiskVolumeSource
  volumePath fsType storagePolicyName storagePolicyID
core.v1.WeightedPodAffinityTerm
  weight podAffinityTerm
core.v1.WindowsSecurityContextOptions
  gmsaCredentialSpecName* gmsaCredentialSpec* runAsUserName* hostProcess*
events.v1.Event
  metadata eventTime series reportingController reportingInstance action reason regarding
  related note type deprecatedSource deprecatedFirstTimestamp deprecatedLastTimestamp
  deprecatedCount
events.v1.EventSeries
  count lastObservedTime
meta.v1.Condition
  type status observedGeneration lastTransitionTime reason message
meta.v1.DeleteOptions
  gracePeriodSeconds* preconditions orphanDependents* propagationPolicy* dryRun
  ignoreStoreReadErrorWithClusterBreakingPotential*
meta.v1.FieldSelectorRequirement
  key operator values
meta.v1.LabelSelector
  matchLabels matchExpressions
meta.v1.LabelSelectorRequirement
  key operator values
meta.v1.ListMeta
  selfLink resourceVersion continue remainingItemCount*
meta.v1.ManagedFieldsEntry
  manager operation apiVersion time - fieldsType fieldsV1 subresource
meta.v1.ObjectMeta
  name generateName namespace selfLink uid resourceVersion generation creationTimestamp
  deletionTimestamp deletionGracePeriodSeconds* labels annotations ownerReferences finalizers -
  - managedFields
meta.v1.OwnerReference
  kind - name uid apiVersion controller* blockOwnerDeletion*
meta.v1.Preconditions
  uid* resourceVersion*
meta.v1.Status
  metadata status message reason details code
meta.v1.StatusCause
  reason message field
meta.v1.StatusDetails
  name group kind causes retryAfterSeconds uid
policy.v1.Eviction
  metadata deleteOptions
rbac.v1.AggregationRule
  clusterRoleSelectors
rbac.v1.ClusterRole
  metadata rules aggregationRule
rbac.v1.ClusterRoleBinding
  metadata subjects roleRef
rbac.v1.PolicyRule
  verbs apiGroups resources resourceNames nonResourceURLs
rbac.v1.Role
  metadata rules
rbac.v1.RoleBinding
  metadata subjects roleRef
rbac.v1.RoleRef
  apiGroup kind name
rbac.v1.Subject
  kind apiGroup name namespace
"""
