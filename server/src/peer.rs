//! Who is on the other end of a connection, as far as the transport can tell.

use std::{net::SocketAddr, sync::Arc};

use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Inserted into every request by the listener.
#[derive(Debug, Clone)]
pub struct Peer {
    pub address: SocketAddr,
    /// The client's certificate, when it presented one that the configured authority signed.
    pub certificate: Option<Arc<PeerCertificate>>,
}

/// The names in a verified client certificate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeerCertificate {
    pub common_name: String,
    pub organizations: Vec<String>,
    pub dns_names: Vec<String>,
}

impl PeerCertificate {
    /// Reads the names of a certificate that the TLS layer has already verified.
    pub fn read(der: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject();
        // A subject with two common names could be read as either: it is read as neither.
        let mut names = subject.iter_common_name().filter_map(|name| name.as_str().ok());
        let common_name = match (names.next(), names.next()) {
            (Some(name), None) => name.to_owned(),
            _ => String::new(),
        };
        let organizations =
            subject.iter_organization().filter_map(|name| name.as_str().ok()).map(str::to_owned).collect();
        let dns_names = certificate
            .subject_alternative_name()
            .ok()
            .flatten()
            .map(|extension| {
                extension
                    .value
                    .general_names
                    .iter()
                    .filter_map(|name| match name {
                        GeneralName::DNSName(name) => Some((*name).to_owned()),
                        _ => None,
                    })
                    .collect()
            })
            .unwrap_or_default();
        Some(Self { common_name, organizations, dns_names })
    }
}
