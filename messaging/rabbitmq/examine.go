package rabbitmq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/oncebox/oncebox/messaging/diagnosis"
	"github.com/oncebox/oncebox/messaging/wire"
)

var _ diagnosis.Examiner = (*Broker)(nil)

// examineTimeout is how long an examination may take in all.
const examineTimeout = 20 * time.Second

// Examine implements [diagnosis.Examiner]. AMQP shows whether the queues of the subscriptions that this program knows exist and have consumers. Their
// settings, policies, and the subscriptions of other programs need Config.ManagementURL; without it the error says so.
func (b *Broker) Examine(ctx context.Context, e diagnosis.Examination) ([]diagnosis.Finding, error) {
	ctx, leave, err := b.enter(ctx, "examine", examineTimeout)
	if err != nil {
		return nil, err
	}
	defer leave()
	if _, err := b.wait(ctx, b.consumer, "examine"); err != nil {
		return []diagnosis.Finding{diagnosis.Find(diagnosis.Connection, diagnosis.Problem, "start the broker, or correct ONCEBOX_RABBITMQ_URL",
			"the service could not connect to the broker at ONCEBOX_RABBITMQ_URL: %v", err)}, nil
	}
	if b.cfg.ManagementURL == "" {
		return nil, errors.New("rabbitmq: examine: AMQP shows neither policies nor the settings of queues: set Config.ManagementURL " +
			"(ONCEBOX_RABBITMQ_MANAGEMENT_URL) to the address of the management plugin, http://host:15672")
	}
	m := management{cfg: &b.cfg}
	queues, err := m.queues(ctx)
	if err != nil {
		return nil, fmt.Errorf("rabbitmq: examine: %w", err)
	}
	found, topics := examineQueues(b.topology.names, queues, e.Topics)
	for n := range topics {
		list, err := e.Compare(ctx, &topics[n])
		found = append(found, list...)
		if err != nil {
			return found, fmt.Errorf("rabbitmq: examine topic %s: %w", topics[n].Name, err)
		}
	}
	return found, nil
}

// queueInfo is what the management plugin shows about a queue.
type queueInfo struct {
	Name      string         `json:"name"`
	Type      string         `json:"type"`
	State     string         `json:"state"`
	Durable   bool           `json:"durable"`
	Messages  int64          `json:"messages"`
	Consumers int            `json:"consumers"`
	Members   []string       `json:"members"`
	Online    []string       `json:"online"`
	Arguments map[string]any `json:"arguments"`
	Policy    string         `json:"policy"`
	Effective map[string]any `json:"effective_policy_definition"`
}

// subscriptionOf returns the topic and the subscription of a queue, and false for a queue of another program.
func (n names) subscriptionOf(queue string) (topic, subscription string, ok bool) {
	parts := strings.Split(queue, separator)
	if len(parts) != 4 || parts[0] != n.exchange {
		return "", "", false
	}
	return wire.Unescape(parts[1]), wire.Unescape(parts[2]), true
}

// examineQueues finds settings of queues that lose messages, and reads the topics that the queues belong to. topics restricts the topics, nil means
// all.
func examineQueues(n names, queues []queueInfo, topics []string) (found []diagnosis.Finding, read []diagnosis.Topic) {
	byName := map[string]int{}
	for i := range queues {
		q := &queues[i]
		topic, subscription, ok := n.subscriptionOf(q.Name)
		if !ok || len(topics) > 0 && !slices.Contains(topics, topic) {
			continue
		}
		found = append(found, q.faults()...)
		at, known := byName[topic]
		if !known {
			at = len(read)
			byName[topic] = at
			read = append(read, diagnosis.Topic{Name: topic})
		}
		read[at].Subscriptions = q.addTo(read[at].Subscriptions, subscription)
	}
	return found, read
}

// addTo adds the queue to its subscription.
func (q *queueInfo) addTo(list []diagnosis.Subscription, name string) []diagnosis.Subscription {
	at := -1
	for i := range list {
		if list[i].Name == name {
			at = i
		}
	}
	if at < 0 {
		exchange := q.Name[:strings.LastIndex(q.Name, separator)]
		list = append(list, diagnosis.Subscription{
			Name: name, Remove: fmt.Sprintf("delete the exchange %s and the queues %s%s0, 1 and so on, with `rabbitmqctl delete_queue` or in the management UI",
				exchange, exchange, separator),
		})
		at = len(list) - 1
	}
	s := &list[at]
	s.Unordered = s.Unordered || q.Arguments["x-single-active-consumer"] != true
	s.Waiting += q.Messages
	s.Consumers = max(s.Consumers, q.Consumers)
	if q.Messages > 0 && q.Consumers == 0 {
		s.Unattended++
	}
	return list
}

// faults finds what is wrong with one queue, the worst first.
func (q *queueInfo) faults() (found []diagnosis.Finding) {
	add := func(severity diagnosis.Severity, mend, format string, args ...any) {
		found = append(found, diagnosis.Find(diagnosis.Broker, severity, mend, "queue "+q.Name+": "+format, args...))
	}
	if q.Type != "quorum" || !q.Durable {
		add(diagnosis.Problem, "let its consumers empty it, delete it (rabbitmqctl delete_queue "+q.Name+"), and start the service, which makes a quorum queue",
			"it is a %s queue, which loses messages with its node", q.Type)
	}
	policy := "change the policy " + q.Policy + " (rabbitmqctl list_policies), or exclude queues with this name from it"
	if limit, ok := q.setting("delivery-limit"); ok && limit >= 0 {
		add(diagnosis.Problem, policy, "it drops a message after %.0f failed deliveries (delivery-limit); oncebox makes a dead letter of it itself", limit)
	}
	if ttl, ok := q.setting("message-ttl"); ok {
		add(diagnosis.Problem, policy, "it drops a message after %.0f ms, handled or not (message-ttl)", ttl)
	}
	if expires, ok := q.setting("expires"); ok {
		add(diagnosis.Problem, policy, "it is deleted with its messages if it has no consumer for %.0f ms (expires)", expires)
	}
	for _, limit := range []string{"max-length", "max-length-bytes"} {
		if _, ok := q.setting(limit); ok && q.text("overflow") != "reject-publish" {
			add(diagnosis.Problem, "set overflow to reject-publish in the policy "+q.Policy+", so that publishers wait instead",
				"when it is full it drops its oldest message (%s with overflow drop-head)", limit)
		}
	}
	switch {
	case q.State != "" && q.State != "running", len(q.Online) < len(q.Members)/2+1:
		add(diagnosis.Problem, "start the nodes again; `rabbitmq-queues quorum_status "+q.Name+"` shows which ones are missing",
			"it has no majority of its nodes (state %q, %d of %d online), so its messages cannot be published or received",
			q.State, len(q.Online), len(q.Members))
	case len(q.Members) == 1:
		add(diagnosis.Warning, "add nodes (rabbitmq-queues grow NODE all), or live with it in a test system",
			"its messages are on one node only, and are lost with its disk")
	}
	return found
}

// setting returns a number that a policy or an argument sets for the queue.
func (q *queueInfo) setting(name string) (float64, bool) {
	for _, from := range []any{q.Effective[name], q.Arguments["x-"+name]} {
		if n, ok := from.(float64); ok {
			return n, true
		}
	}
	return 0, false
}

func (q *queueInfo) text(name string) string {
	for _, from := range []any{q.Effective[name], q.Arguments["x-"+name]} {
		if text, ok := from.(string); ok {
			return text
		}
	}
	return ""
}

// management asks the management plugin.
type management struct{ cfg *Config }

// queues lists the queues of the virtual host.
func (m management) queues(ctx context.Context) (queues []queueInfo, err error) {
	u, err := url.Parse(strings.TrimSuffix(m.cfg.ManagementURL, "/"))
	if err != nil {
		return nil, errors.New("Config.ManagementURL (ONCEBOX_RABBITMQ_MANAGEMENT_URL) is not a URL")
	}
	broker, vhost := m.cfg.credentials()
	if u.User == nil {
		u.User = broker
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.Scheme+"://"+u.Host+u.Path+"/api/queues/"+url.PathEscape(vhost), nil)
	if err != nil {
		return nil, err
	}
	password, _ := u.User.Password()
	request.SetBasicAuth(u.User.Username(), password)
	request.Close = true // leaves no connection behind
	settings, err := m.cfg.tls()
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: settings, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the management plugin (Config.ManagementURL, ONCEBOX_RABBITMQ_MANAGEMENT_URL): %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 500)) // the status alone says enough
		return nil, fmt.Errorf("ask the management plugin at %s: %s: %s; the user needs the tag monitoring", u.Host, response.Status, text)
	}
	if err := json.NewDecoder(response.Body).Decode(&queues); err != nil {
		return nil, fmt.Errorf("read the answer of the management plugin at %s: %w", u.Host, err)
	}
	return queues, nil
}

// credentials returns the user and the virtual host of Config.URL.
func (c *Config) credentials() (user *url.Userinfo, vhost string) {
	user, vhost = url.UserPassword("guest", "guest"), "/"
	addresses, err := c.addresses()
	if err != nil {
		return user, vhost
	}
	if uri, err := url.Parse(addresses[0]); err == nil {
		if uri.User != nil {
			user = uri.User
		}
		if name := strings.TrimPrefix(uri.Path, "/"); name != "" {
			vhost = name
		}
	}
	return user, vhost
}
