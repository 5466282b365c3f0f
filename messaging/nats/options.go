package nats

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"time"

	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/retry"
)

// errFile means that a file of the configuration cannot be read.
var errFile = errors.New("nats: a file cannot be used")

// options leaves reconnecting to the client. Its buffer for the time without a connection is off: what it holds would be sent long after Publish has
// reported it as unknown.
func (c *Config) options() ([]natsclient.Option, error) {
	pauses := retry.Policy{Delay: 100 * time.Millisecond, MaxDelay: 3 * time.Second}
	options := []natsclient.Option{
		natsclient.Name("oncebox " + c.Name), natsclient.Timeout(c.ConnectionTimeout), natsclient.PingInterval(c.PingInterval),
		natsclient.MaxPingsOutstanding(2), natsclient.MaxReconnects(-1), natsclient.ReconnectBufSize(-1), natsclient.IgnoreAuthErrorAbort(),
		natsclient.CustomReconnectDelay(pauses.Pause),
	}
	if c.InboxPrefix != "" {
		options = append(options, natsclient.CustomInboxPrefix(c.InboxPrefix))
	}
	switch {
	case c.User != "":
		options = append(options, natsclient.UserInfo(c.User, c.Password))
	case c.Token != "":
		options = append(options, natsclient.Token(c.Token))
	case c.CredsFile != "":
		if err := checkCreds(c.CredsFile); err != nil { // it would later look like a server that does not answer
			return nil, fmt.Errorf("%w: Config.CredsFile (ONCEBOX_NATS_CREDS_FILE): %w", errFile, err)
		}
		options = append(options, natsclient.UserCredentials(c.CredsFile))
	case c.NKeyFile != "":
		key, err := natsclient.NkeyOptionFromSeed(c.NKeyFile)
		if err != nil {
			return nil, fmt.Errorf("%w: Config.NKeyFile (ONCEBOX_NATS_NKEY_FILE): %w", errFile, err)
		}
		options = append(options, key)
	}
	return appendTLS(options, c)
}

// checkCreds reads a file as the client does at each connection.
func checkCreds(file string) error {
	content, err := os.ReadFile(file) //nolint:gosec // the user's own choice
	if err != nil {
		return err
	}
	if _, err = nkeys.ParseDecoratedUserNKey(content); err != nil {
		return fmt.Errorf("%s: %w: write it with nsc generate creds", file, err)
	}
	return nil
}

// appendTLS adds the options for TLS, if anything of it is set. The client reads the files at each connection; they are read here as well, because a
// wrong one would later look like a server that does not answer.
func appendTLS(options []natsclient.Option, c *Config) ([]natsclient.Option, error) {
	for variable, files := range map[string]adapters.TLS{
		"ONCEBOX_NATS_TLS_TRUST_CERTS": {TrustCerts: c.TLSTrustCerts},
		"ONCEBOX_NATS_TLS_CERT":        {Cert: c.TLSCert, Key: c.TLSKey},
	} {
		if _, err := files.Load(); err != nil {
			return nil, fmt.Errorf("%w: %w (%s)", errFile, err, variable)
		}
	}
	if c.TLSTrustCerts != "" {
		options = append(options, natsclient.RootCAs(c.TLSTrustCerts))
	}
	if c.TLSCert != "" {
		options = append(options, natsclient.ClientCert(c.TLSCert, c.TLSKey))
	}
	if c.TLSAllowInsecure {
		options = append(options, natsclient.Secure(&tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true})) //nolint:gosec // the setting says so
	}
	return options, nil
}
