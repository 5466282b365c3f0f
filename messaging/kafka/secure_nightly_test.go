//go:build nightly && (linux || darwin)

package kafka

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/oncebox/oncebox/internal/devenv"
)

// A real broker with passwords, certificates and rights: users are alice and bob, administrators come without a password by the listener PLAINTEXT.
func TestRealSecurity(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	servers, err := devenv.StartKafka(t.Context(), nil, devenv.KafkaSettings{
		Listeners: []string{"SASL_PLAINTEXT", "SASL_SSL", "SSL"}, Lines: append(saslLines(), tlsLines(t, ca)...),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, servers.Stop()) })
	at := servers.Nodes[0].Listeners
	client, err := kgo.NewClient(kgo.SeedBrokers(servers.URL))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	root := kadm.NewClient(client)
	for _, mechanism := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} { // Kafka takes one change of a user at a time
		made, err := root.AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: "alice", Mechanism: mechanism, Iterations: 8192, Password: "secret"}})
		require.NoError(t, err)
		require.NoError(t, made.Error())
	}
	of := func(listener string) *Config { return realConfig(at[listener]) }
	all := kadm.NewACLs().Allow("User:bob", "User:CN=alice").AllowHosts("*").Operations(kadm.OpAll).ResourcePatternType(kadm.ACLPatternLiteral)
	_, err = root.CreateACLs(t.Context(), all.Topics("*").Groups("*"))
	require.NoError(t, err)

	t.Run("passwords", func(t *testing.T) {
		t.Parallel()
		for _, mechanism := range []string{Plain, Scram256, Scram512} {
			cfg := of("SASL_SSL")
			cfg.TLSTrustCerts = ca.trusted()
			cfg.SASL, cfg.Username, cfg.Password = mechanism, "alice", "wrong"
			_, err := Connect(t.Context(), cfg)
			require.ErrorIs(t, err, kerr.SaslAuthenticationFailed, mechanism)
			cfg.Password = "secret"
			_, err = Connect(t.Context(), withTopic(cfg))
			require.Contains(t, requireTrouble(t, err), "--operation WRITE", "%s: the password is accepted, and alice has no rights", mechanism)
		}
		cfg := of("SASL_SSL")
		cfg.TLSTrustCerts, cfg.SASL, cfg.Username, cfg.Password = ca.trusted(), Plain, "bob", "secret"
		require.NoError(t, connect(t, cfg).Publish(t.Context(), series("order", "a", 1)))
	})
	t.Run("certificates", func(t *testing.T) {
		t.Parallel()
		cfg := of("SSL")
		cfg.TLSTrustCerts = ca.trusted()
		testClientCertificate(t, cfg, ca)
	})
	t.Run("server certificate", func(t *testing.T) {
		t.Parallel()
		cfg := of("SASL_SSL")
		cfg.SASL, cfg.Username, cfg.Password = Plain, "bob", "secret"
		testServerCertificate(t, cfg, ca)
	})
	t.Run("rights", func(t *testing.T) {
		t.Parallel()
		cfg := of("SASL_PLAINTEXT")
		cfg.SASL, cfg.Username, cfg.Password = Scram512, "alice", "secret"
		testRights(t, rights{root, cfg})
	})
}

func withTopic(cfg *Config) *Config {
	out := *cfg
	out.Topics = []string{"order"}
	return &out
}

// saslLines configure the listeners with passwords, and rights.
func saslLines() []string {
	lines := []string{
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users=User:ANONYMOUS",
		"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
	}
	for _, listener := range []string{"sasl_plaintext", "sasl_ssl"} {
		prefix := "listener.name." + listener + "."
		for _, scram := range []string{"scram-sha-256", "scram-sha-512"} {
			lines = append(lines, prefix+scram+".sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;")
		}
		lines = append(lines, prefix+"plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "+
			`user_alice="secret" user_bob="secret";`)
	}
	return lines
}

// tlsLines configure the listeners with certificates. Those of SSL know their clients by certificates.
func tlsLines(t *testing.T, ca *authority) []string {
	t.Helper()
	cert, key := ca.issue(t, "broker")
	var both strings.Builder
	for _, path := range []string{key, cert} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		both.Write(text)
	}
	store := filepath.Join(ca.folder, "store.pem")
	require.NoError(t, os.WriteFile(store, []byte(both.String()), 0o600))
	return []string{
		"ssl.keystore.type=PEM", "ssl.keystore.location=" + store, "ssl.truststore.type=PEM", "ssl.truststore.location=" + ca.trusted(),
		"listener.name.ssl.ssl.client.auth=required",
	}
}
