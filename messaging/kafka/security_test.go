package kafka

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

func TestTLS(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	trusted := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(trusted, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	c := cluster(t, kfake.TLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}))

	cfg := configOf(c.ListenAddrs()...)
	cfg.TLSTrustCerts = trusted
	require.NoError(t, connect(t, cfg).Publish(t.Context(), series("order", "a", 1)))
	cfg.TLSTrustCerts, cfg.TLSAllowInsecure = "", true
	require.NoError(t, connect(t, cfg).Publish(t.Context(), series("order", "a", 1)))
	cfg.TLSAllowInsecure, cfg.TLS, cfg.Required, cfg.ConnectTimeout = false, true, true, 5*time.Second
	_, err = Connect(t.Context(), cfg)
	require.ErrorContains(t, err, "certificate")
	cfg.TLSTrustCerts = filepath.Join(t.TempDir(), "missing")
	_, err = Connect(t.Context(), cfg)
	require.ErrorContains(t, err, "Config.TLSTrustCerts")
}

func TestConfigIsCheckedAtTheStart(t *testing.T) {
	t.Parallel()
	for says, change := range map[string]func(*Config){
		"ONCEBOX_KAFKA_URL":                func(c *Config) { c.URL = " , " },
		"give the addresses of brokers":    func(c *Config) { c.URL = "http://host:9092" },
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
		*cfg.(*Config) = *own //nolint:forcetypeassert // of this package
		return nil
	}})
	require.ErrorContains(t, err, "--create --topic "+own.Prefix+"order --partitions 4")
}
