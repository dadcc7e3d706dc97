//! Serving TLS: certificate, key, and the authority that client certificates must chain to.

use std::{path::PathBuf, sync::Arc};

use rustls::{RootCertStore, ServerConfig, server::WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use thiserror::Error;

/// Files of the server's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Client certificates are asked for, and accepted only when this authority signed them. A client
    /// without one gets through the handshake; what it may do is for the identity mode to say.
    pub client_authority: Option<PathBuf>,
}

#[derive(Debug, Error)]
pub enum TlsError {
    #[error("cannot read {what} from {path}; it must be PEM")]
    Read { what: &'static str, path: String, source: rustls_pki_types::pem::Error },
    #[error("{path} holds no certificate; is it the key?")]
    Empty { path: String },
    #[error("the certificate {certificate} and the key {key} cannot be used together")]
    Pair { certificate: String, key: String, source: rustls::Error },
    #[error("the client authority {path} cannot be used")]
    Authority { path: String, source: Box<dyn std::error::Error + Send + Sync> },
}

/// Reads the files and builds the configuration that connections are accepted with.
pub fn server_config(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = certificates("the server's certificate", &files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|source| TlsError::Read {
        what: "the server's key",
        path: files.key.display().to_string(),
        source,
    })?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("ring offers the suites of TLS 1.2 and 1.3");
    let builder = match &files.client_authority {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let wrong = |source: Box<dyn std::error::Error + Send + Sync>| TlsError::Authority {
                path: path.display().to_string(),
                source,
            };
            let mut roots = RootCertStore::empty();
            for root in certificates("the client authority", path)? {
                roots.add(root).map_err(|error| wrong(error.into()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| wrong(error.into()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|source| TlsError::Pair {
        certificate: files.certificate.display().to_string(),
        key: files.key.display().to_string(),
        source,
    })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(what: &'static str, path: &PathBuf) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let shown = path.display().to_string();
    let read = |source| TlsError::Read { what, path: shown.clone(), source };
    let chain =
        CertificateDer::pem_file_iter(path).map_err(read)?.collect::<Result<Vec<_>, _>>().map_err(read)?;
    if chain.is_empty() { Err(TlsError::Empty { path: shown }) } else { Ok(chain) }
}
