package kafka

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/oncebox/oncebox/messaging/brokers"
)

func TestSASL(t *testing.T) {
	t.Parallel()
	c := cluster(t, kfake.EnableSASL(), kfake.Superuser(Plain, "plain", "secret"), kfake.Superuser(Scram256, "s256", "secret"),
		kfake.Superuser(Scram512, "s512", "secret"))
	for mechanism, user := range map[string]string{Plain: "plain", Scram256: "s256", Scram512: "s512"} {
		cfg := configOf(c.ListenAddrs()...)
		cfg.SASL, cfg.Username, cfg.PasswordFile = mechanism, user, filepath.Join(t.TempDir(), "password")
		require.NoError(t, os.WriteFile(cfg.PasswordFile, []byte("secret\n"), 0o600))
		require.NoError(t, connect(t, cfg).Publish(t.Context(), series("order", "a", 1)), mechanism)
	}
	c.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code // as Kafka does; kfake hangs up
		return resp, nil, true
	})
	cfg := configOf(c.ListenAddrs()...)
	cfg.SASL, cfg.Username, cfg.Password = Plain, "plain", "wrong"
	_, err := Connect(t.Context(), cfg)
	require.ErrorIs(t, err, kerr.SaslAuthenticationFailed, "waiting does not mend it")
}

// authority is a certificate authority of a test.
type authority struct {
	folder string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	serial int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	a := &authority{folder: t.TempDir(), key: key}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &key.PublicKey, key)
	require.NoError(t, err)
	a.write(t, a.trusted(), &pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

// trusted is the path of the authority's own certificate.
func (a *authority) trusted() string { return filepath.Join(a.folder, "ca.pem") }

// issue writes a key and a certificate for 127.0.0.1, and returns their paths.
func (a *authority) issue(t *testing.T, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	a.serial++
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1 + a.serial), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, a.cert, &private.PublicKey, a.key)
	require.NoError(t, err)
	text, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	cert, key = filepath.Join(a.folder, name+".pem"), filepath.Join(a.folder, name+".key")
	a.write(t, cert, &pem.Block{Type: "CERTIFICATE", Bytes: der})
	a.write(t, key, &pem.Block{Type: "PRIVATE KEY", Bytes: text})
	return cert, key
}

func (*authority) write(t *testing.T, path string, block *pem.Block) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	server, err := tls.LoadX509KeyPair(ca.issue(t, "broker"))
	require.NoError(t, err)
	pool := x509.NewCertPool()
	text, err := os.ReadFile(ca.trusted())
	require.NoError(t, err)
	require.True(t, pool.AppendCertsFromPEM(text))
	own := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{server}}
	cfg := configOf(cluster(t, kfake.TLS(own)).ListenAddrs()...)
	testServerCertificate(t, cfg, ca)

	mutual := own.Clone()
	mutual.ClientAuth, mutual.ClientCAs = tls.RequireAndVerifyClientCert, pool
	testClientCertificate(t, configOf(cluster(t, kfake.TLS(mutual)).ListenAddrs()...), ca)
}

// The error of a client that speaks another protocol than the listener names its own.
func TestListenerOfAnotherKind(t *testing.T) {
	t.Parallel()
	for says, change := range map[string]func(*Config){
		"this client speaks SSL: ":            func(c *Config) { c.TLS = true },
		"this client speaks SASL_PLAINTEXT: ": func(c *Config) { c.SASL, c.Username, c.Password = Plain, "alice", "secret" },
	} {
		cfg := configOf(cluster(t).ListenAddrs()...)
		cfg.Required, cfg.ConnectTimeout, cfg.OperationTimeout = true, 2*time.Second, time.Second
		change(cfg)
		_, err := Connect(t.Context(), cfg)
		require.ErrorContains(t, err, says)
	}
}

// testServerCertificate checks which brokers a client trusts. An error is returned at once, because waiting does not mend it.
func testServerCertificate(t *testing.T, cfg *Config, ca *authority) {
	t.Helper()
	trusting := *cfg
	trusting.TLSTrustCerts = ca.trusted()
	require.NoError(t, connect(t, &trusting).Publish(t.Context(), series("order", "a", 1)))
	insecure := *cfg
	insecure.TLSAllowInsecure = true
	require.NoError(t, connect(t, &insecure).Publish(t.Context(), series("order", "a", 1)))
	unknown := *cfg
	unknown.TLS = true
	_, err := Connect(t.Context(), &unknown)
	require.ErrorContains(t, err, "x509: certificate signed by unknown authority")
	missing := *cfg
	missing.TLSTrustCerts = filepath.Join(t.TempDir(), "missing")
	_, err = Connect(t.Context(), &missing)
	require.ErrorContains(t, err, "Config.TLSTrustCerts")
	plain := *cfg
	plain.Required, plain.ConnectTimeout = true, 2*time.Second
	answers := regexp.MustCompile("is TLS missing|speaking to a tls endpoint") // of kfake, or of Kafka
	eventually(t, func() bool {
		_, err := Connect(t.Context(), &plain)
		require.Error(t, err)
		return answers.MatchString(err.Error())
	}, "the error asks for TLS")
}

// testClientCertificate checks that the broker knows a client by its certificate.
func testClientCertificate(t *testing.T, cfg *Config, ca *authority) {
	t.Helper()
	known := *cfg
	known.TLSTrustCerts = ca.trusted()
	known.TLSCert, known.TLSKey = ca.issue(t, "alice")
	require.NoError(t, connect(t, &known).Publish(t.Context(), series("order", "a", 1)))
	nobody := *cfg
	nobody.TLSTrustCerts = ca.trusted()
	_, err := Connect(t.Context(), &nobody)
	require.ErrorContains(t, err, "tls: ")
	stranger := *cfg
	stranger.TLSTrustCerts = ca.trusted()
	stranger.TLSCert, stranger.TLSKey = newAuthority(t).issue(t, "mallory")
	_, err = Connect(t.Context(), &stranger)
	require.ErrorContains(t, err, "tls: ")
}

func TestConfigIsCheckedAtTheStart(t *testing.T) {
	t.Parallel()
	for says, change := range map[string]func(*Config){
		"ONCEBOX_KAFKA_URL":                func(c *Config) { c.URL = " , " },
		"give the addresses of brokers":    func(c *Config) { c.URL = "http://host:9092" },
		"ONCEBOX_KAFKA_URL)":               func(c *Config) { c.URL = "127.0.0.1:x" },
		"OperationTimeout":                 func(c *Config) { c.OperationTimeout = 50 * time.Millisecond },
		"SessionTimeout":                   func(c *Config) { c.SessionTimeout = 50 * time.Millisecond },
		`give "make" or "check"`:           func(c *Config) { c.Declare = "manage" },
		"ONCEBOX_KAFKA_PREFIX":             func(c *Config) { c.Prefix = "a/b" },
		"ONCEBOX_KAFKA_PARTITIONS":         func(c *Config) { c.Partitions = -1 },
		"ONCEBOX_KAFKA_REPLICATION":        func(c *Config) { c.Replication = -1 },
		"ONCEBOX_KAFKA_RETENTION":          func(c *Config) { c.Retention = -2 },
		"ONCEBOX_KAFKA_MAX_MESSAGE_BYTES":  func(c *Config) { c.MaxMessageBytes = 1 },
		"ONCEBOX_KAFKA_MAX_RECEIVED_BYTES": func(c *Config) { c.MaxReceivedBytes = 1 },
		"ONCEBOX_KAFKA_FETCH_BYTES":        func(c *Config) { c.FetchBytes = 1 },
		"ONCEBOX_KAFKA_PRODUCERS":          func(c *Config) { c.Producers = -1 },
		"HandoverTimeout":                  func(c *Config) { c.HandoverTimeout = -1 },
		"LogInterval":                      func(c *Config) { c.LogInterval = 1 },
		"ONCEBOX_KAFKA_SASL":               func(c *Config) { c.SASL = "GSSAPI" },
		"Config.SASL is empty":             func(c *Config) { c.Username = "x" },
		"ONCEBOX_KAFKA_PASSWORD_FILE":      func(c *Config) { c.SASL, c.Username = Plain, "x" },
		"are both set":                     func(c *Config) { c.SASL, c.Username, c.Password, c.PasswordFile = Plain, "x", "y", "z" },
		"belong together":                  func(c *Config) { c.TLSCert = "x" },
		"Config.Topics":                    func(c *Config) { c.Topics = []string{"a/b"} },
		"Config.Subscriptions":             func(c *Config) { c.Subscriptions = append(c.Subscriptions, billing); c.Subscriptions[0].Name = "" },
	} {
		cfg := &Config{URL: "127.0.0.1:1"}
		change(cfg)
		_, err := Connect(t.Context(), cfg)
		require.ErrorContains(t, err, says)
	}
	require.NoError(t, (&Config{URL: "kafka://one:9092, two:9092"}).Validate())
}

// An address of another system may have a password, which does not belong into a log.
func TestNoPasswordIsShown(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"nats://ann:secret@host:4222", "ann:secret@host:9092", "postgres://ann:sec@ret@host", "one:9092,amqp://ann:se,cret@two"} {
		_, err := Connect(t.Context(), &Config{URL: url})
		require.ErrorContains(t, err, "give the addresses of brokers")
		require.NotRegexp(t, "secret|sec|ret|ann", err)
	}
}

func TestKindReadsTheEnvironment(t *testing.T) {
	t.Parallel()
	own := configOf(cluster(t).ListenAddrs()...)
	own.Declare, own.Topics = Check, []string{"order"}
	_, err := Kind().Connect(t.Context(), brokers.Options{Env: func(prefix string, cfg any) error {
		require.Equal(t, "ONCEBOX_KAFKA_", prefix)
		*cfg.(*Config) = *own
		return nil
	}})
	require.ErrorContains(t, err, "--create --topic "+own.Prefix+"order --partitions 4")
}
