package management

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Client asks the management plugin about one virtual host. Make it with [New].
type Client struct {
	address, vhost string
	user           *url.Userinfo
	http           http.Client
}

// New returns a client for the plugin at this address, http://host:15672. user is for an address without one.
func New(address *url.URL, user *url.Userinfo, vhost string, settings *tls.Config) *Client {
	if address.User != nil {
		user = address.User
	}
	return &Client{
		address: address.Scheme + "://" + address.Host + strings.TrimSuffix(address.Path, "/"), vhost: vhost, user: user,
		http: http.Client{Transport: &http.Transport{TLSClientConfig: settings, DisableKeepAlives: true}}, // leaves no connection behind
	}
}

// Queues lists the queues.
func (c *Client) Queues(ctx context.Context) (all []Queue, err error) {
	return all, c.get(ctx, "/api/queues/"+url.PathEscape(c.vhost), &all)
}

// Exchanges lists the exchanges.
func (c *Client) Exchanges(ctx context.Context) (all []Exchange, err error) {
	return all, c.get(ctx, "/api/exchanges/"+url.PathEscape(c.vhost), &all)
}

// Nodes lists the nodes of the cluster.
func (c *Client) Nodes(ctx context.Context) (all []Node, err error) {
	return all, c.get(ctx, "/api/nodes", &all)
}

func (c *Client) get(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.address+path, nil)
	if err != nil {
		return err
	}
	password, _ := c.user.Password()
	request.SetBasicAuth(c.user.Username(), password)
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("ask the management plugin (Config.ManagementURL, ONCEBOX_RABBITMQ_MANAGEMENT_URL): %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 500)) // the status alone says enough
		return fmt.Errorf("ask the management plugin at %s: %s: %s; the user needs the tag monitoring", c.address, response.Status, text)
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return fmt.Errorf("read the answer of the management plugin at %s: %w", c.address, err)
	}
	return nil
}
