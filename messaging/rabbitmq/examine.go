package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/messaging/diagnosis"
	"github.com/oncebox/oncebox/messaging/rabbitmq/internal/management"
	"github.com/oncebox/oncebox/messaging/wire"
)

var _ diagnosis.Examiner = (*Broker)(nil)

// examineTimeout is how long an examination may take in all.
const examineTimeout = 20 * time.Second

// statesDelay is how long the plugin may not know the state of a queue that was just made: queues and plugin both collect for 5 seconds.
const statesDelay = 12 * time.Second

// Examine implements [diagnosis.Examiner]. All but the connection is read from the management plugin; without Config.ManagementURL the error says so.
// It finds alarms, queues and policies that lose messages, queues that are missing or have no leader, and a subscription of another service.
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
	seen, err := b.survey(ctx, e.Topics)
	found, topics := seen.subscriptions(e.Topics)
	found = append(seen.alarms(), found...)
	same, compareErr := e.Compare(ctx, topics)
	found, err = append(found, same...), errors.Join(err, compareErr)
	if err != nil {
		return found, fmt.Errorf("rabbitmq: examine: %w", err)
	}
	return found, nil
}

// survey is what the management plugin shows, as far as the user may see it.
type survey struct {
	names     names
	nodes     []management.Node
	exchanges []management.Exchange
	queues    []management.Queue
}

func (b *Broker) survey(ctx context.Context, topics []string) (s survey, err error) {
	began := time.Now()
	if b.cfg.ManagementURL == "" {
		return s, errors.New("AMQP shows neither policies nor the settings of queues: set Config.ManagementURL " +
			"(ONCEBOX_RABBITMQ_MANAGEMENT_URL) to the address of the management plugin, http://host:15672")
	}
	address, err := url.Parse(b.cfg.ManagementURL)
	if err != nil {
		return s, errors.New("Config.ManagementURL (ONCEBOX_RABBITMQ_MANAGEMENT_URL) is not a URL")
	}
	settings, err := b.cfg.tls()
	if err != nil {
		return s, err
	}
	user, vhost, err := b.cfg.credentials()
	if err != nil {
		return s, err
	}
	client := management.New(address, user, vhost, settings)
	s.names = b.topology.names
	if s.queues, err = client.Queues(ctx); err != nil {
		return s, err
	}
	for !s.hasStates(topics) && backoff.Wait(ctx, time.Second) == nil && time.Since(began) < statesDelay {
		if s.queues, err = client.Queues(ctx); err != nil {
			return s, err
		}
	}
	var exchanges, nodes error
	s.exchanges, exchanges = client.Exchanges(ctx)
	s.nodes, nodes = client.Nodes(ctx)
	return s, errors.Join(exchanges, nodes)
}

// hasStates reports whether the plugin knows the state of each queue of these topics.
func (s *survey) hasStates(topics []string) bool {
	return !slices.ContainsFunc(s.queues, func(q management.Queue) bool {
		_, topic, _, ok := s.names.parse(q.Name)
		return ok && isAmong(topic, topics) && q.State == ""
	})
}

// isAmong reports whether an examination of these topics includes this one; nil includes all.
func isAmong(topic string, topics []string) bool {
	return topics == nil || slices.Contains(topics, topic)
}

// alarms finds the nodes that make the broker take no messages.
func (s *survey) alarms() (found []diagnosis.Finding) {
	for _, node := range s.nodes {
		for what, isOn := range map[string]bool{"memory": node.MemoryAlarm, "disk space": node.DiskAlarm} {
			if isOn {
				found = append(found, diagnosis.Find(diagnosis.Broker, diagnosis.Problem,
					"let consumers empty the queues, or give the node more; `rabbitmq-diagnostics status` shows the limits",
					"node %s runs out of %s, so the broker takes no messages: they wait in the outbox", node.Name, what))
			}
		}
	}
	return found
}

// subscriptions finds what is wrong with the queues of these topics, nil means all, and reads the topics for a comparison.
func (s *survey) subscriptions(topics []string) (found []diagnosis.Finding, read []diagnosis.Topic) {
	byTopic, present := map[string]int{}, map[string]bool{}
	stored := s.stored()
	for i := range s.queues {
		q := &s.queues[i]
		exchange, topic, subscription, ok := s.names.parse(q.Name)
		if !ok || !isAmong(topic, topics) {
			continue
		}
		present[q.Name] = true
		found = append(found, faults(q)...)
		at, known := byTopic[topic]
		if !known {
			at = len(read)
			byTopic[topic] = at
			read = append(read, diagnosis.Topic{Name: topic})
		}
		read[at].Subscriptions = add(q, read[at].Subscriptions, diagnosis.Subscription{
			Name: subscription, Owner: stored[exchange].owner,
			Remove: fmt.Sprintf("delete the exchange %s and the queues %[1]s%s0, 1 and so on, with `rabbitmqctl delete_queue` or in the management UI",
				exchange, separator),
		})
	}
	for _, exchange := range slices.Sorted(maps.Keys(stored)) {
		for n := range stored[exchange].queues {
			queue := queueName(exchange, n)
			if _, topic, _, ok := s.names.parse(queue); ok && isAmong(topic, topics) && !present[queue] {
				found = append(found, diagnosis.Find(diagnosis.Broker, diagnosis.Problem,
					"start a process of the service that runs the consumer, which makes it again",
					"queue %s does not exist, so the broker keeps no messages of its keys for the subscription", queue))
			}
		}
	}
	for _, topic := range topics {
		if _, known := byTopic[topic]; !known {
			found = append(found, diagnosis.Find(diagnosis.Broker, diagnosis.Problem,
				"correct the name, or start the service that consumes the topic, which makes its queues",
				"topic %s: it has no queue of oncebox: unless another program has bound one, the broker refuses its messages, and they wait in the outbox",
				topic))
		}
	}
	return found, read
}

// about is what exchanges store about a subscription, see topology.own and topology.makeAll.
type about struct {
	owner  diagnosis.Publisher
	queues int // 0 for a subscription that an operator has made
}

// stored returns what is stored about each subscription, by the name of its exchange.
func (s *survey) stored() map[string]about {
	all := map[string]about{}
	for _, e := range s.exchanges {
		exchange, _, _, isMark := s.names.parse(e.Name)
		if !isMark {
			exchange = e.Name
		}
		value, _ := e.Arguments[alternate].(string)
		a := all[exchange]
		if text, ok := strings.CutPrefix(value, s.names.value(layoutMark, "")); ok {
			a.queues, _ = strconv.Atoi(text[strings.LastIndex(text, "-")+1:]) // 0 if it is none of ours
		} else if text, ok := strings.CutPrefix(value, s.names.value(sourceMark, "")); ok {
			a.owner.Source = wire.Unescape(text)
		} else if text, ok := strings.CutPrefix(value, s.names.value(installationMark, "")); ok {
			a.owner.Installation = wire.Unescape(text)
		} else {
			continue
		}
		all[exchange] = a
	}
	return all
}

// parse takes the name of a queue, or of an exchange that stores a part of the owner, apart. It returns false for one of another program.
func (n names) parse(name string) (exchange, topic, subscription string, ok bool) {
	parts := strings.Split(name, separator)
	if len(parts) != 4 || parts[0] != n.exchange {
		return "", "", "", false
	}
	return strings.Join(parts[:3], separator), wire.Unescape(parts[1]), wire.Unescape(parts[2]), true
}

// add adds a queue to its subscription, which is s if the list does not have it yet.
func add(q *management.Queue, list []diagnosis.Subscription, s diagnosis.Subscription) []diagnosis.Subscription {
	at := slices.IndexFunc(list, func(o diagnosis.Subscription) bool { return o.Name == s.Name })
	if at < 0 {
		at, list = len(list), append(list, s)
	}
	of := &list[at]
	of.Unordered = of.Unordered || q.Arguments["x-single-active-consumer"] != true
	of.Waiting += q.Messages
	of.Consumers = max(of.Consumers, q.Consumers)
	if q.Messages > 0 && q.Consumers == 0 {
		of.Unattended++
	}
	return list
}

// without returns how to get rid of a setting, which a policy can change and an argument can not.
func without(q *management.Queue, setting string) string {
	if _, isPolicy := q.Effective[setting]; isPolicy {
		return "change the policy " + q.Policy + " (rabbitmqctl list_policies), or exclude queues with this name from it"
	}
	return anew(q)
}

func anew(q *management.Queue) string {
	return "let its consumers empty it, delete it (rabbitmqctl delete_queue " + q.Name + "), and start the service, which makes it as it has to be"
}

// faults finds what is wrong with one queue, the worst first.
func faults(q *management.Queue) (found []diagnosis.Finding) {
	add := func(severity diagnosis.Severity, mend, format string, args ...any) {
		found = append(found, diagnosis.Find(diagnosis.Broker, severity, mend, "queue "+q.Name+": "+format, args...))
	}
	if q.Type != quorum || !q.Durable {
		add(diagnosis.Problem, anew(q),
			"it is a %s queue, which loses messages with its node", q.Type)
	}
	if limit, ok := q.DeliveryLimit(); ok {
		add(diagnosis.Problem, without(q, "delivery-limit"), "it drops a message after %.0f failed deliveries (delivery-limit); oncebox makes a dead letter "+
			"of it itself", limit)
	}
	if ttl, ok := q.Number("message-ttl"); ok {
		add(diagnosis.Problem, without(q, "message-ttl"), "it drops a message after %.0f ms, handled or not (message-ttl)", ttl)
	}
	if expires, ok := q.Number("expires"); ok {
		add(diagnosis.Problem, without(q, "expires"), "it is deleted with its messages if it has no consumer for %.0f ms (expires)", expires)
	}
	for _, limit := range []string{"max-length", "max-length-bytes"} {
		if _, ok := q.Number(limit); ok && q.Text("overflow") != "reject-publish" {
			add(diagnosis.Problem, without(q, limit)+"; or set overflow to reject-publish, so that publishers wait instead",
				"when it is full it drops its oldest message (%s with overflow drop-head)", limit)
		}
	}
	switch {
	case q.Type == quorum && q.State == "":
		add(diagnosis.Problem, "delete it (rabbitmqctl delete_queue "+q.Name+"); the service makes it again when it connects, and what was in it is lost",
			"it has no state, because no process of the broker serves it: its messages cannot be received, messages of its keys get no confirm, and its "+
				"consumer waits in vain. RabbitMQ leaves a queue like that if it is killed in the seconds after the queue was made")
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

// credentials returns the user and the virtual host of Config.URL.
func (c *Config) credentials() (user *url.Userinfo, vhost string, err error) {
	addresses, err := c.addresses()
	if err != nil {
		return nil, "", err
	}
	uri, err := amqp.ParseURI(addresses[0])
	return url.UserPassword(uri.Username, uri.Password), uri.Vhost, err
}
