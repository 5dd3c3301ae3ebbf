//! The messages of `k8s.io/kubelet/pkg/apis/podresources/v1/api.proto`, as far as they are read; fields that are not here are skipped.
//! They are annotated by hand, so that no build needs protoc.

/// What `List` is asked with.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(super) struct ListPodResourcesRequest {}

/// What it answers.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ListPodResourcesResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) pod_resources: Vec<PodResources>,
}

/// A pod's.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PodResources {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) namespace: String,
    #[prost(message, repeated, tag = "3")]
    pub(super) containers: Vec<ContainerResources>,
}

/// A container's.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ContainerResources {
    #[prost(message, repeated, tag = "2")]
    pub(super) devices: Vec<ContainerDevices>,
    #[prost(message, repeated, tag = "5")]
    pub(super) dynamic_resources: Vec<DynamicResource>,
}

/// The devices of one resource.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ContainerDevices {
    #[prost(string, tag = "1")]
    pub(super) resource_name: String,
    #[prost(string, repeated, tag = "2")]
    pub(super) device_ids: Vec<String>,
}

/// A claim.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DynamicResource {
    #[prost(message, repeated, tag = "4")]
    pub(super) claim_resources: Vec<ClaimResource>,
}

/// A device of a claim.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ClaimResource {
    #[prost(string, tag = "2")]
    pub(super) driver_name: String,
    #[prost(string, tag = "3")]
    pub(super) pool_name: String,
    #[prost(string, tag = "4")]
    pub(super) device_name: String,
}
