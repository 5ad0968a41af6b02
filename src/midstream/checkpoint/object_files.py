"""Files of an object store: S3, Google Cloud Storage, Azure.

An object appears when it is complete, so a plain put is atomic. Arrow has no put that fails where there is an object,
so a name that must be new is given by a conditional put through `obstore`.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from midstream.checkpoint.crash_points import reach
from midstream.checkpoint.failures import AlreadyThere
from midstream.checkpoint.files import Data
from midstream.checkpoint.remote_files import PATIENCE, RemoteFiles, put
from midstream.errors import JobError


class ObjectFiles(RemoteFiles):
    """Files under an address of an object store."""

    def __init__(self, uri: str, filesystem: Any = None, root: str = "") -> None:
        super().__init__(uri, filesystem, root)
        self._store: Any = None

    def _replace(self, path: str, pieces: Sequence[Data], point: str) -> None:
        filesystem, place = self._place(path)
        put(filesystem, place, pieces, point)

    def _create(self, path: str, pieces: Sequence[Data], point: str) -> None:
        reach(f"{point}.before_write")
        self._put_new(path, b"".join(pieces))
        reach(f"{point}.after_write")

    def _put_new(self, path: str, content: bytes) -> None:
        """Puts an object only if there is none of its name."""
        obstore = _obstore(self.uri)
        if self._store is None:
            self._store = _store(self.uri, self._place("")[0])
        try:
            obstore.put(self._store, path, content, mode="create", use_multipart=False)
        except obstore.exceptions.AlreadyExistsError as error:
            raise AlreadyThere(f"{self.full(path)} is already there") from error
        except obstore.exceptions.BaseError as error:
            raise JobError(
                f"cannot write {self.full(path)}",
                detail=str(error).strip().partition("\n")[0],
                hint="make the storage reachable, then start the job again: it resumes where it was",
            ) from error


def _obstore(uri: str) -> Any:
    try:
        import obstore
        import obstore.exceptions
    except ImportError as error:
        raise JobError(
            f"a job cannot keep its checkpoint at {uri}: obstore is not installed",
            detail="only its conditional puts keep two drivers from committing the same batch",
            hint="pip install 'midstream[object-stores]'",
        ) from error
    return obstore


def _store(uri: str, filesystem: Any) -> Any:
    """What puts conditionally under an address, as Arrow's file system there is configured."""
    from obstore import store

    from_url: Any = store.from_url
    parts = urlsplit(uri)
    plain = parts._replace(query="").geturl()
    retry = {"retry_timeout": dt.timedelta(seconds=PATIENCE)}
    if parts.scheme == "s3":
        bucket = parts.hostname or parts.netloc
        plain = parts._replace(netloc=bucket, query="").geturl()
        return from_url(plain, retry_config=retry, **_s3_options(uri, filesystem))
    if parts.scheme == "gs" and parts.username == "anonymous":
        plain = parts._replace(netloc=parts.hostname or "", query="").geturl()
        return from_url(plain, retry_config=retry, skip_signature=True)
    return from_url(plain, retry_config=retry)


def _s3_options(uri: str, filesystem: Any) -> dict[str, Any]:
    parts = urlsplit(uri)
    asked = dict(parse_qsl(parts.query))
    options: dict[str, Any] = {}
    region = asked.get("region") or getattr(filesystem, "region", None)
    if region:
        options["region"] = region
    named = (os.environ.get(name) for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"))
    if endpoint := asked.get("endpoint_override") or next(filter(None, named), None):
        scheme = asked.get("scheme", "https")
        options["endpoint"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
        options["virtual_hosted_style_request"] = asked.get("force_virtual_addressing", "false")
        options["client_options"] = {"allow_http": scheme == "http" or endpoint.startswith("http:")}
    if parts.username and parts.password:
        options["access_key_id"], options["secret_access_key"] = unquote(parts.username), unquote(parts.password)
    elif "AWS_ACCESS_KEY_ID" not in os.environ and (provider := _profile()):
        options["credential_provider"] = provider
    return options


def _profile() -> Any:
    """Credentials as the AWS tools find them, in profiles too, where boto3 is installed."""
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider

        return Boto3CredentialProvider()
    except (ImportError, ValueError):
        return None
