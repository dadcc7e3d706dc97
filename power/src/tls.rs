//! Whether the far end is who it should be, decided before anything secret is sent.
//!
//! Every trust setting becomes one rustls configuration whose verifier also notes which key was presented,
//! so that a refusal can name it. A connection that is not trusted ends inside the handshake.

use std::sync::{Arc, Mutex, PoisonError};

use muster_model::power::{Fault, Pin, Trust};
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _};
use sha2::{Digest as _, Sha256};

/// What the last handshake said about the far end's key, if it was refused.
pub(crate) type Verdict = Arc<Mutex<Option<Fault>>>;

/// Takes the reason for a refused handshake, if that is why a connection failed.
pub(crate) fn take(verdict: &Verdict) -> Option<Fault> {
    verdict.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// A client configuration for `trust`; `verdict` learns why a handshake was refused.
pub(crate) fn client_config(trust: &Trust, verdict: &Verdict) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let rule =
        match trust {
            Trust::Pin { pin } => Rule::Pin(*pin),
            Trust::Insecure => Rule::Anyone,
            Trust::Webpki => Rule::Signed {
                verifier: Arc::new(rustls_platform_verifier::Verifier::new(Arc::clone(&provider)).map_err(
                    |error| format!("the system's certificate authorities cannot be read: {error}"),
                )?),
                name: None,
            },
            Trust::Ca { pem, server_name } => {
                Rule::Signed { verifier: authority(pem, &provider)?, name: name(server_name.as_deref())? }
            }
        };
    let verifier = Verifier { rule, provider: Arc::clone(&provider), verdict: Arc::clone(verdict) };
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring supports the default protocol versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth())
}

fn authority(pem: &str, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| format!("the CA bundle cannot be read: {error}"))?;
        roots.add(certificate).map_err(|error| format!("the CA bundle cannot be used: {error}"))?;
    }
    if roots.is_empty() {
        return Err("the CA bundle contains no certificate".into());
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| format!("the CA bundle cannot be used: {error}"))?;
    Ok(verifier)
}

fn name(server_name: Option<&str>) -> Result<Option<ServerName<'static>>, String> {
    server_name
        .map(|name| ServerName::try_from(name.to_owned()))
        .transpose()
        .map_err(|_| "the server name in the trust setting is not a name".to_owned())
}

/// The SHA-256 of a certificate's public key. Unreadable certificates are pinned by their own bytes.
pub fn pin_of(certificate: &CertificateDer<'_>) -> Pin {
    let key = x509_parser::parse_x509_certificate(certificate)
        .map_or_else(|_| certificate.to_vec(), |(_, parsed)| parsed.public_key().raw.to_vec());
    Pin(Sha256::digest(key).into())
}

#[derive(Debug)]
enum Rule {
    Pin(Option<Pin>),
    Signed { verifier: Arc<dyn ServerCertVerifier>, name: Option<ServerName<'static>> },
    Anyone,
}

#[derive(Debug)]
struct Verifier {
    rule: Rule,
    provider: Arc<CryptoProvider>,
    verdict: Verdict,
}

impl Verifier {
    fn refuse(&self, fault: Fault) -> rustls::Error {
        *self.verdict.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
        rustls::Error::InvalidCertificate(rustls::CertificateError::ApplicationVerificationFailure)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = pin_of(end_entity);
        match &self.rule {
            Rule::Pin(None) => Err(self.refuse(Fault::Unapproved { found })),
            Rule::Pin(Some(pin)) if *pin == found => Ok(ServerCertVerified::assertion()),
            Rule::Pin(Some(pin)) => {
                Err(self.refuse(Fault::Untrusted { why: format!("the approved key is {pin}"), found }))
            }
            Rule::Anyone => Ok(ServerCertVerified::assertion()),
            Rule::Signed { verifier, name } => {
                let expected = name.as_ref().unwrap_or(server_name);
                verifier
                    .verify_server_cert(end_entity, intermediates, expected, ocsp_response, now)
                    .map_err(|error| self.refuse(Fault::Untrusted { why: error.to_string(), found }))
            }
        }
    }

    // The signatures are checked under every rule: they prove that the far end holds the key it showed.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
