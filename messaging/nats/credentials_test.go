package nats

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"
)

func write(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	key, err := nkeys.CreateUser()
	require.NoError(t, err)
	public, err := key.PublicKey()
	require.NoError(t, err)
	seed, err := key.Seed()
	require.NoError(t, err)
	token := start(t, t.TempDir(), func(o *natsserver.Options) { o.Authorization = "t0ken" })
	nkey := start(t, t.TempDir(), func(o *natsserver.Options) { o.Nkeys = []*natsserver.NkeyUser{{Nkey: public}} })
	for _, c := range []*Config{
		{URL: token.URL(), Token: "t0ken"},
		{URL: strings.Replace(token.URL(), "//", "//t0ken@", 1)},
		{URL: nkey.URL(), NKeyFile: write(t, "seed", seed)},
	} {
		c.Required = true
		require.NoError(t, connect(t, c).Publish(t.Context(), events(1, 1)))
	}
	for wanted, c := range map[string]*Config{
		"Authorization Violation":      {URL: token.URL(), Token: "wrong"},
		"ONCEBOX_NATS_NKEY_FILE":       {URL: nkey.URL(), NKeyFile: "/does/not/exist"},
		"ONCEBOX_NATS_CREDS_FILE":      {URL: nkey.URL(), CredsFile: "/does/not/exist"},
		"ONCEBOX_NATS_TLS_CERT":        {URL: nkey.URL(), TLSCert: "/does/not/exist", TLSKey: "/does/not/exist"},
		"ONCEBOX_NATS_TLS_TRUST_CERTS": {URL: nkey.URL(), TLSTrustCerts: "/does/not/exist"},
	} {
		_, err := Connect(t.Context(), c) // it does not wait: nothing of this passes by itself
		require.ErrorContains(t, err, wanted)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	certFile := write(t, "cert", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	keyFile := write(t, "key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}))
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(pair.Leaf)
	server := start(t, t.TempDir(), func(o *natsserver.Options) {
		o.TLS, o.TLSVerify = true, true
		o.TLSConfig = &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: pool,
			ClientAuth: tls.RequireAndVerifyClientCert,
		}
	})
	address := strings.Replace(server.URL(), "nats:", "tls:", 1)
	trusting := connect(t, &Config{URL: address, TLSTrustCerts: certFile, TLSCert: certFile, TLSKey: keyFile, Required: true})
	require.NoError(t, trusting.Publish(t.Context(), events(1, 1)))
	careless := connect(t, &Config{URL: address, TLSAllowInsecure: true, TLSCert: certFile, TLSKey: keyFile, Required: true})
	require.NoError(t, careless.Publish(t.Context(), events(2, 2)))
	_, err = Connect(t.Context(), &Config{URL: address, TLSCert: certFile, TLSKey: keyFile})
	require.ErrorContains(t, err, "x509", "the authority is not trusted")
}
