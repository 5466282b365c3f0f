package pulsar

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/oncebox/oncebox/messaging"
)

// admin speaks to the admin API about the topics of one namespace.
type admin struct {
	base      string // of the API, without a slash at its end and without a password
	namespace string // tenant/namespace
	token     string
	tokenFile string
	user      *url.Userinfo // of the URL; nil: none
	http      *http.Client
}

// adminError is an answer of the broker other than a success.
type adminError struct {
	call   string
	status int
	reason string
}

func (e *adminError) Error() string {
	return fmt.Sprintf("%s: %d %s: %s", e.call, e.status, http.StatusText(e.status), e.reason)
}

// newSubscription is the body of a request for a subscription at the earliest message. Without a body the broker takes the latest.
type newSubscription struct {
	LedgerID   int               `json:"ledgerId"`       //nolint:tagliatelle // Pulsar's
	EntryID    int               `json:"entryId"`        //nolint:tagliatelle // Pulsar's
	Partition  int               `json:"partitionIndex"` //nolint:tagliatelle // Pulsar's
	Properties map[string]string `json:"properties,omitempty"`
}

func newAdmin(c *Config) (*admin, error) {
	tlsConfig, err := adminTLS(c)
	if err != nil {
		return nil, err
	}
	base, err := url.Parse(c.AdminURL)
	if err != nil {
		return nil, errors.New("pulsar: Config.AdminURL is no URL")
	}
	user := base.User
	base.User = nil
	return &admin{
		base: base.String() + "/admin/v2", namespace: c.Tenant + "/" + c.Namespace, token: c.Token, tokenFile: c.TokenFile, user: user,
		http: &http.Client{
			Timeout:       c.OperationTimeout,
			Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: tlsConfig, IdleConnTimeout: 30 * time.Second},
			CheckRedirect: stayAuthorized,
		},
	}, nil
}

// maxRedirects is that of net/http.
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
		req.Header.Set(name, credentials) //nolint:gosec // to the broker that the one that was let in names, as Pulsar's own clients do
	}
	return nil
}

func adminTLS(c *Config) (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.TLSAllowInsecure} //nolint:gosec // on demand
	if c.TLSTrustCerts != "" {
		pem, err := os.ReadFile(c.TLSTrustCerts)
		if err != nil {
			return nil, fmt.Errorf("pulsar: Config.TLSTrustCerts: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("pulsar: Config.TLSTrustCerts: %s holds no certificate", c.TLSTrustCerts)
		}
	}
	if c.TLSCert != "" {
		cert, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
		if err != nil {
			return nil, fmt.Errorf("pulsar: Config.TLSCert: %w", err)
		}
		out.Certificates = []tls.Certificate{cert}
	}
	return out, nil
}

// reachable asks for a topic, whether it is there or not.
func (a *admin) reachable(ctx context.Context) error {
	_, err := a.partitions(ctx, "oncebox")
	if isStatus(err, http.StatusNotFound) {
		return nil
	}
	return err
}

// partitions returns how many partitions a topic has, 0 if it has none or does not exist.
func (a *admin) partitions(ctx context.Context, topic string) (int, error) {
	var meta struct {
		Partitions *int `json:"partitions"`
	}
	if err := a.do(ctx, http.MethodGet, a.topic(topic)+"/partitions", "", &meta); err != nil {
		return 0, err
	}
	if meta.Partitions == nil {
		return 0, errors.New("the answer has no partitions: not an admin API")
	}
	return *meta.Partitions, nil
}

// makeTopic makes a partitioned topic. It returns false if there is one of that name, partitioned or not.
func (a *admin) makeTopic(ctx context.Context, topic string, partitions int) (bool, error) {
	err := a.do(ctx, http.MethodPut, a.topic(topic)+"/partitions", strconv.Itoa(partitions), nil)
	if isStatus(err, http.StatusConflict, http.StatusPreconditionFailed) {
		return false, nil
	}
	return err == nil, err
}

// makeSubscription makes a subscription at the earliest message. It returns false if the broker answers that there is one, or that
// another request is making it.
func (a *admin) makeSubscription(ctx context.Context, s messaging.Subscription) (bool, error) {
	body, err := json.Marshal(newSubscription{-1, -1, -1, subscriptionProperties(s)})
	if err != nil {
		return false, err
	}
	err = a.do(ctx, http.MethodPut, a.subscription(s.Topic, s.Name), string(body), nil)
	if isStatus(err, http.StatusConflict, http.StatusPreconditionFailed) {
		return false, nil
	}
	return err == nil, err
}

// subscribed tells whether all partitions of a topic have a subscription.
func (a *admin) subscribed(ctx context.Context, topic string, partitions int, name string) (bool, error) {
	parts := []string{topic}
	if partitions > 0 {
		parts = parts[:0]
		for i := range partitions {
			parts = append(parts, topic+"-partition-"+strconv.Itoa(i))
		}
	}
	for _, part := range parts {
		subscriptions, err := a.subscriptions(ctx, part)
		if err != nil || subscriptions[name] == nil {
			return false, err
		}
	}
	return true, nil
}

// subscriptionStats are the parts of a subscription's statistics that are used here.
type subscriptionStats struct {
	Type       string            `json:"type"`                   // "None" until its first consumer
	Properties map[string]string `json:"subscriptionProperties"` //nolint:tagliatelle // Pulsar's
}

// isUnbatched tells whether the subscription is Key_Shared, or will be when its first consumer comes.
func (s *subscriptionStats) isUnbatched() bool {
	return s.Type == "Key_Shared" || s.Properties[unbatchedProperty] != ""
}

// firstPartition is the topic itself if it has none.
func firstPartition(topic string, partitions int) string {
	if partitions == 0 {
		return topic
	}
	return topic + "-partition-0"
}

// subscriptions returns those of an unpartitioned topic or of one partition.
func (a *admin) subscriptions(ctx context.Context, topic string) (map[string]*subscriptionStats, error) {
	stats, err := a.stats(ctx, topic)
	return stats.Subscriptions, err
}

// topicStats are the parts of the statistics of a topic, or of a partition, that are used here.
type topicStats struct {
	Subscriptions map[string]*subscriptionStats `json:"subscriptions"`
	Publishers    []struct {
		Metadata map[string]string `json:"metadata"`
	} `json:"publishers"`
}

// stats returns those of an unpartitioned topic or of one partition, none of one that is not there.
func (a *admin) stats(ctx context.Context, topic string) (stats topicStats, err error) {
	err = a.do(ctx, http.MethodGet, a.topic(topic)+"/stats", "", &stats)
	if isStatus(err, http.StatusNotFound) {
		return topicStats{}, nil
	}
	return stats, err
}

// topic is the path of a topic. The broker decodes names as forms do.
func (a *admin) topic(name string) string {
	return "/persistent/" + a.namespace + "/" + url.QueryEscape(name)
}

// do sends a request with a JSON body, if there is one, and decodes the answer into result, if that is not nil.
func (a *admin) do(ctx context.Context, method, path, body string, result any) error {
	call := method + " " + a.base + path
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if err := a.authorize(req); err != nil {
		return err
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	if resp.StatusCode/100 != 2 {
		var why struct {
			Reason *string `json:"reason"`
		}
		if json.Unmarshal(answer, &why) != nil || why.Reason == nil {
			return fmt.Errorf("%s: %s, and no reason: not an admin API", call, resp.Status)
		}
		return &adminError{call: call, status: resp.StatusCode, reason: *why.Reason}
	}
	if result == nil || len(bytes.TrimSpace(answer)) == 0 {
		return nil
	}
	if err := json.Unmarshal(answer, result); err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	return nil
}

func (a *admin) authorize(req *http.Request) error {
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

func isStatus(err error, statuses ...int) bool {
	answer, ok := errors.AsType[*adminError](err)
	return ok && slices.Contains(statuses, answer.status)
}

func isForbidden(err error) bool { return isStatus(err, http.StatusUnauthorized, http.StatusForbidden) }
