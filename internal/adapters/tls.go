package adapters

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

// TLS has the settings of TLS that the Config of each adapter has, with the prefix TLS.
type TLS struct {
	TrustCerts, Cert, Key string // paths of files in PEM format
	AllowInsecure         bool
}

// Load reads the certificates once, at the start, so a wrong path is found there. The errors name the fields of the Config.
func (t TLS) Load() (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: t.AllowInsecure} //nolint:gosec // on demand
	if t.TrustCerts != "" {
		pem, err := os.ReadFile(t.TrustCerts)
		if err != nil {
			return nil, fmt.Errorf("Config.TLSTrustCerts: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("Config.TLSTrustCerts: %s holds no certificate", t.TrustCerts)
		}
	}
	if t.Cert != "" {
		cert, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("Config.TLSCert: %w", err)
		}
		out.Certificates = []tls.Certificate{cert}
	}
	return out, nil
}

// IsTLSFault reports whether TLS has failed for a reason that waiting does not mend: one side does not accept the certificate of the other one, or
// does not speak TLS.
func IsTLSFault(err error) bool {
	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	_, other := errors.AsType[tls.RecordHeaderError](err)
	return unverified || other || err != nil && strings.Contains(err.Error(), "remote error: tls: ") // an alert of the other side, which has no type of its own
}
