package topics

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
)

// Admin asks the admin API about the topics of one namespace. It needs no connection to the broker itself.
type Admin struct {
	base      string // of the API, without a slash at its end and without a password
	namespace string // tenant/namespace
	token     string
	tokenFile string
	user      *url.Userinfo // of the URL; nil: none
	http      *http.Client

	// LookFor bounds the time in which entries of a backlog are looked at, see sample. NewAdmin sets a quarter of a second.
	LookFor time.Duration
}

// NewAdmin returns an error if the address or the certificates cannot be used. It asks nothing.
func NewAdmin(c *Config) (*Admin, error) {
	settings := adapters.TLS{TrustCerts: c.TLSTrustCerts, Cert: c.TLSCert, Key: c.TLSKey, AllowInsecure: c.TLSAllowInsecure}
	tlsConfig, err := settings.Load()
	if err != nil {
		return nil, fmt.Errorf("pulsar: %w", err)
	}
	base, err := url.Parse(c.AdminURL)
	if err != nil {
		return nil, errors.New("pulsar: Config.AdminURL (ONCEBOX_PULSAR_ADMIN_URL) is not a URL")
	}
	// A password in the address becomes a header, so that it appears in no error and no log.
	user := base.User
	base.User = nil
	return &Admin{
		LookFor: time.Second / 4,
		base:    base.String() + "/admin/v2", namespace: c.Tenant + "/" + c.Namespace, token: c.Token, tokenFile: c.TokenFile, user: user,
		http: &http.Client{
			Timeout: c.OperationTimeout,
			// The transport is not the default one, because certificates are set per broker. It keeps the
			// variables for proxies. A sample makes several requests at once.
			Transport: &http.Transport{
				Proxy: http.ProxyFromEnvironment, TLSClientConfig: tlsConfig, IdleConnTimeout: 30 * time.Second, MaxIdleConnsPerHost: fewest,
			},
			CheckRedirect: stayAuthorized,
		},
	}, nil
}

// maxRedirects is the limit that net/http has by default. Setting CheckRedirect takes it away.
const maxRedirects = 10

// stayAuthorized sends the credentials again when a broker redirects a request to the broker that owns the topic. net/http drops them
// when the host changes. From https to http they are not sent.
func stayAuthorized(req *http.Request, via []*http.Request) error {
	before := via[len(via)-1]
	if len(via) >= maxRedirects {
		return fmt.Errorf("%d redirects, the last one to %s", len(via), req.URL.Redacted())
	}
	const name = "Authorization"
	if credentials := before.Header.Get(name); credentials != "" && req.URL.Scheme == before.URL.Scheme {
		req.Header.Set(name, credentials) //nolint:gosec // to the broker that the first broker names, as Pulsar's own clients do
		// A header for http would send the token unencrypted, so the scheme has to be equal.
	}
	return nil
}

// Namespace returns tenant/namespace.
func (a *Admin) Namespace() string { return a.namespace }

// Close closes idle connections.
func (a *Admin) Close() { a.http.CloseIdleConnections() }

// do sends a request with a JSON body, if there is one, and decodes the answer into result, if that is not nil.
func (a *Admin) do(ctx context.Context, method, path, body string, result any) error {
	_, text, err := a.send(ctx, method, path, body)
	if err != nil || result == nil || len(bytes.TrimSpace(text)) == 0 {
		return err
	}
	if err := json.Unmarshal(text, result); err != nil {
		return fmt.Errorf("%s %s: %w", method, a.base+path, err)
	}
	return nil
}

// send returns the header and the body of the answer.
func (a *Admin) send(ctx context.Context, method, path, body string) (http.Header, []byte, error) {
	call := method + " " + a.base + path
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if err := a.authorize(req); err != nil {
		return nil, nil, err
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	// The limit keeps a wrong server from filling the memory. The statistics of a topic with many
	// partitions fit by far.
	text, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", call, err)
	}
	// Pulsar answers with a reason in JSON. Anything else is probably a proxy or another server at this address.
	if resp.StatusCode/100 != 2 {
		var why struct {
			Reason *string `json:"reason"`
		}
		switch {
		case method == http.MethodHead: // its answers have no body
			return nil, nil, &answer.AdminError{Call: call, Status: resp.StatusCode}
		case json.Unmarshal(text, &why) != nil || why.Reason == nil:
			return nil, nil, fmt.Errorf("%s: the answer %s has no reason in it, so this is not Pulsar's admin API: correct Config.AdminURL "+
				"(ONCEBOX_PULSAR_ADMIN_URL)", call, resp.Status)
		}
		return nil, nil, &answer.AdminError{Call: call, Status: resp.StatusCode, Reason: *why.Reason}
	}
	return resp.Header, text, nil
}

// authorize reads the file of the token for each request, because tokens are renewed in place (Kubernetes
// does so for projected ones).
func (a *Admin) authorize(req *http.Request) error {
	token := a.token
	if a.tokenFile != "" {
		text, err := os.ReadFile(a.tokenFile)
		if err != nil {
			return fmt.Errorf("pulsar: Config.TokenFile: %w", err)
		}
		token = strings.TrimSpace(string(text))
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	} else if a.user != nil {
		password, _ := a.user.Password()
		req.SetBasicAuth(a.user.Username(), password)
	}
	return nil
}
