"""A certificate authority of the moment, and keys of nodes: for servers on the loopback, and for nothing else."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM
PLAIN = serialization.NoEncryption()


def certificates(folder: Path) -> None:
    """ca.crt, and server.crt with server.key for 127.0.0.1."""
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    root = named("test authority")
    ca = signed(
        root, root, authority.public_key(), authority, x509.BasicConstraints(ca=True, path_length=None)
    )
    where = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    own = signed(named("127.0.0.1"), root, server.public_key(), authority, where)
    (folder / "ca.crt").write_bytes(ca.public_bytes(PEM))
    (folder / "server.crt").write_bytes(own.public_bytes(PEM))
    key = server.private_bytes(PEM, serialization.PrivateFormat.PKCS8, PLAIN)
    (folder / "server.key").write_bytes(key)


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def signed(subject, issuer, public, key, extension) -> x509.Certificate:
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
    made = made.serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(hours=1))
    made = made.not_valid_after(now + timedelta(days=1)).add_extension(extension, critical=False)
    return made.sign(key, hashes.SHA256())


def node_key(folder: Path, name: str) -> tuple[Path, Path]:
    """A node's private and public key, as Flower reads them."""
    key = ec.generate_private_key(ec.SECP384R1())
    private, public = folder / f"{name}.key", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(PEM, serialization.PrivateFormat.OpenSSH, PLAIN))
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    )
    return private, public
