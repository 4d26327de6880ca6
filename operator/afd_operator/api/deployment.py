"""AFDDeployment: the whole object, and the names under which the API server knows it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from afd_operator.api.base import ApiModel
from afd_operator.api.spec import AFDDeploymentSpec
from afd_operator.api.status import AFDDeploymentStatus
from afd_unit import labels

GROUP = labels.GROUP
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "AFDDeployment"
PLURAL = "afddeployments"
SINGULAR = "afddeployment"
SHORT_NAME = "afd"


class Metadata(ApiModel):
    """What the operator reads of an object's metadata."""

    model_config = ConfigDict(extra="ignore")

    name: Annotated[str, Field(min_length=1, max_length=253)]
    namespace: Annotated[str, Field(min_length=1, max_length=63)] = "default"
    uid: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: datetime | None = None


class AFDDeployment(ApiModel):
    """A mixture-of-experts model, served by units whose attention and experts run on different nodes of one
    NVLink domain."""

    api_version: Literal["afd.dev/v1alpha1"] = "afd.dev/v1alpha1"
    kind: Literal["AFDDeployment"] = "AFDDeployment"
    metadata: Metadata
    spec: AFDDeploymentSpec
    """What is wanted."""

    status: AFDDeploymentStatus = AFDDeploymentStatus()
    """What is."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"
