package nats

import (
	"crypto/tls"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/internal/certtest"
	"github.com/oncebox/oncebox/messaging"
)

func write(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	key := newKey(t, nkeys.CreateUser)
	seed, err := key.Seed()
	require.NoError(t, err)
	token := start(t, t.TempDir(), func(o *natsserver.Options) { o.Authorization = "t0ken" })
	nkey := start(t, t.TempDir(), func(o *natsserver.Options) { o.Nkeys = []*natsserver.NkeyUser{{Nkey: key.public}} })
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
		"holds no certificate":         {URL: nkey.URL(), TLSTrustCerts: write(t, "no-certificate", seed)},
	} {
		_, err := Connect(t.Context(), c) // it does not wait: nothing of this passes by itself
		require.ErrorContains(t, err, wanted)
	}
}

// account is a server that knows its users by their JWTs. It makes the file of a user whose JWT ends at a time; zero means never.
func account(t *testing.T) (url string, creds func(expires time.Time) string) {
	t.Helper()
	operator, account, system := newKey(t, nkeys.CreateOperator), newKey(t, nkeys.CreateAccount), newKey(t, nkeys.CreateAccount)
	resolver := &natsserver.MemAccResolver{}
	for _, k := range []*pair{account, system} {
		claims := jwt.NewAccountClaims(k.public)
		if k == account {
			claims.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: -1, MemoryStorage: -1, Streams: -1, Consumer: -1}
		}
		text, err := claims.Encode(operator.KeyPair)
		require.NoError(t, err)
		require.NoError(t, resolver.Store(k.public, text))
	}
	server := start(t, t.TempDir(), func(o *natsserver.Options) {
		o.TrustedOperators, o.AccountResolver, o.SystemAccount = []*jwt.OperatorClaims{jwt.NewOperatorClaims(operator.public)}, resolver, system.public
	})
	return server.URL(), func(expires time.Time) string {
		user := newKey(t, nkeys.CreateUser)
		claims := jwt.NewUserClaims(user.public)
		if !expires.IsZero() {
			claims.Expires = expires.Unix()
		}
		text, err := claims.Encode(account.KeyPair)
		require.NoError(t, err)
		seed, err := user.Seed()
		require.NoError(t, err)
		file, err := jwt.FormatUserConfig(text, seed)
		require.NoError(t, err)
		return write(t, "creds", file)
	}
}

// pair is a pair of keys.
type pair struct {
	nkeys.KeyPair

	public string
}

func newKey(t *testing.T, create func() (nkeys.KeyPair, error)) *pair {
	t.Helper()
	key, err := create()
	require.NoError(t, err)
	public, err := key.PublicKey()
	require.NoError(t, err)
	return &pair{key, public}
}

func TestCredentialsFile(t *testing.T) {
	t.Parallel()
	url, creds := account(t)
	cfg := config(url)
	cfg.CredsFile = creds(time.Time{})
	b := connect(t, cfg)
	require.NoError(t, b.Publish(t.Context(), events(1, 1)))
	require.Equal(t, numbers(1, 1), receive(t, subscribe(t, b, messaging.Subscription{Name: "billing"}), 1, true))

	for file, wanted := range map[string]string{
		creds(time.Now().Add(-time.Hour)):     "Authorization Violation",
		write(t, "creds", []byte("no creds")): "ONCEBOX_NATS_CREDS_FILE",
		"":                                    "Authorization Violation",
	} {
		cfg := config(url)
		cfg.Required, cfg.CredsFile = false, file
		_, err := Connect(t.Context(), cfg)
		require.ErrorContains(t, err, wanted)
	}
}

// A server behind a leaf node reaches the streams of the other one by their domain.
func TestDomain(t *testing.T) {
	t.Parallel()
	var hub *natsserver.Options
	start(t, t.TempDir(), func(o *natsserver.Options) {
		o.JetStreamDomain, o.LeafNode = "hub", natsserver.LeafNodeOpts{Host: "127.0.0.1", Port: natsserver.RANDOM_PORT}
		hub = o
	})
	leaf := start(t, t.TempDir(), func(o *natsserver.Options) {
		remote := &url.URL{Scheme: "nats", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(hub.LeafNode.Port))}
		o.JetStream, o.LeafNode = false, natsserver.LeafNodeOpts{Remotes: []*natsserver.RemoteLeafOpts{{URLs: []*url.URL{remote}}}}
	})
	cfg := config(leaf.URL())
	cfg.Domain = "hub"
	b := connect(t, cfg)
	r := subscribe(t, b, messaging.Subscription{Name: "billing"})
	require.NoError(t, b.Publish(t.Context(), events(1, 20)))
	require.Equal(t, numbers(1, 20), receive(t, r, 20, true))
	require.NoError(t, r.Close())
	state, err := b.ReadSubscription(t.Context(), "order", "billing")
	require.NoError(t, err)
	require.Zero(t, state.Messages, "the acknowledgements have arrived")
	require.Empty(t, examine(t, b))

	cfg = config(leaf.URL())
	cfg.Domain, cfg.ConnectTimeout = "other", 300*time.Millisecond
	_, err = Connect(t.Context(), cfg)
	require.ErrorIs(t, err, messaging.ErrBrokerDown, "the link to that domain may come later")
	require.ErrorContains(t, err, "reaches no server with JetStream")
}

func TestTLS(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	authority, err := certtest.New(folder, "authority")
	require.NoError(t, err)
	certFile, keyFile, err := authority.Issue(folder, "server")
	require.NoError(t, err)
	settings, err := adapters.TLS{TrustCerts: authority.CertFile, Cert: certFile, Key: keyFile}.Load()
	require.NoError(t, err)
	settings.ClientCAs, settings.ClientAuth = settings.RootCAs, tls.RequireAndVerifyClientCert
	server := start(t, t.TempDir(), func(o *natsserver.Options) {
		o.TLS, o.TLSVerify, o.TLSConfig = true, true, settings
	})
	address := strings.Replace(server.URL(), "nats:", "tls:", 1)
	trusting := connect(t, &Config{URL: address, TLSTrustCerts: authority.CertFile, TLSCert: certFile, TLSKey: keyFile, Required: true})
	require.NoError(t, trusting.Publish(t.Context(), events(1, 1)))
	careless := connect(t, &Config{URL: address, TLSAllowInsecure: true, TLSCert: certFile, TLSKey: keyFile, Required: true})
	require.NoError(t, careless.Publish(t.Context(), events(2, 2)))
	_, err = Connect(t.Context(), &Config{URL: address, TLSCert: certFile, TLSKey: keyFile})
	require.ErrorContains(t, err, "x509", "the authority is not trusted")
	_, err = Connect(t.Context(), &Config{URL: address, TLSTrustCerts: authority.CertFile})
	require.ErrorContains(t, err, "tls", "the client has no certificate")
}
