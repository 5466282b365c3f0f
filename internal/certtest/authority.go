package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority signs certificates.
type Authority struct {
	// CertFile is the path of its own certificate, which clients and servers trust.
	CertFile string

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority, with its certificate in this folder.
func New(folder, name string) (*Authority, error) {
	a := &Authority{}
	certFile, _, err := a.issue(folder, name, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	a.CertFile = certFile
	return a, err
}

// Issue makes a certificate with this common name, for a server at 127.0.0.1 and for a client. It returns the paths of the certificate and of its
// key, in PEM format.
func (a *Authority) Issue(folder, name string) (certFile, keyFile string, err error) {
	return a.issue(folder, name, &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

// issue signs the template, with its own key if there is no authority yet.
func (a *Authority) issue(folder, name string, template *x509.Certificate) (certFile, keyFile string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", fmt.Errorf("certtest: %w", err)
	}
	template.SerialNumber, template.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	if a.cert == nil {
		a.cert, a.key = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return "", "", fmt.Errorf("certtest: sign the certificate of %s: %w", name, err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return "", "", fmt.Errorf("certtest: %w", err)
	}
	certFile, keyFile = filepath.Join(folder, name+".cert.pem"), filepath.Join(folder, name+".key.pem")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "EC PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			return "", "", fmt.Errorf("certtest: %w", err)
		}
	}
	return certFile, keyFile, nil
}
