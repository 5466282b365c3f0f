package rabbitmq

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
)

func billing(topic string) messaging.Subscription {
	return messaging.Subscription{Topic: topic, Name: "billing"}
}

// declared makes a subscription and returns the broker that has made it.
func declared(t *testing.T, s messaging.Subscription) *Broker {
	t.Helper()
	b := connect(t, config(server(t).URL))
	require.NoError(t, b.Declare(patient(t), nil, []messaging.Subscription{s}))
	return b
}

func TestNumberOfQueuesStays(t *testing.T) {
	t.Parallel()
	declared(t, billing("layout"))
	cfg := config(server(t).URL)
	cfg.Queues = 16
	b := connect(t, cfg)
	for _, s := range []messaging.Subscription{billing("layout"), {Topic: "layout", Name: "billing", Type: messaging.Shared}} {
		_, err := b.Subscribe(patient(t), s)
		require.ErrorIs(t, err, errLayout)
		require.True(t, messaging.IsPermanent(err))
		require.ErrorContains(t, err, "failover-8", "what it was made with")
		require.ErrorContains(t, err, "ONCEBOX_RABBITMQ_QUEUES")
	}
	cfg.Subscriptions = []messaging.Subscription{billing("layout")}
	_, err := Connect(patient(t), cfg)
	require.ErrorIs(t, err, errLayout, "at the start")
}

// A start that is refused leaves nothing behind: another service may have the names that it would have taken.
func TestRefusedDeclarationMakesNothing(t *testing.T) {
	t.Parallel()
	taken := billing("refused-taken")
	taken.Source = "shop"
	shop := declared(t, taken)
	fresh, foreign, other := billing("refused-fresh"), taken, taken
	fresh.Source, foreign.Source, other.Type = "mailer", "mailer", messaging.Shared
	for says, refused := range map[string]messaging.Subscription{`"shop"`: foreign, "failover-8": other} {
		list := []messaging.Subscription{fresh, refused}
		require.ErrorContains(t, connect(t, config(server(t).URL)).Declare(patient(t), nil, list), says)
		cfg := config(server(t).URL)
		cfg.Subscriptions = list
		_, err := Connect(patient(t), cfg)
		require.ErrorContains(t, err, says)
		operator(t, func(ch *amqp.Channel) error {
			err := ch.ExchangeDeclarePassive(shop.topology.names.of(fresh.Topic, fresh.Name), amqp.ExchangeDirect, true, false, false, false, nil)
			require.True(t, isCode(err, amqp.NotFound), "%s: %v", says, err)
			return nil
		})
	}
}

// Two services with names that escape to the same text would share a subscription.
func TestNamesStayApart(t *testing.T) {
	t.Parallel()
	n := names{exchange: "oncebox"}
	require.NotEqual(t, n.of("a:b", "c"), n.of("a", "b:c"))
	require.NotEqual(t, n.of("a", "b.c"), n.of("a.b", "c"))
	require.NotContains(t, topicKey("order.*.#"), "*")
	require.NotContains(t, topicKey("order.*.#"), "#")
	require.ErrorIs(t, ValidateTopic(strings.Repeat("é", 60)), event.ErrInvalid, "too long after it was escaped")
	require.NoError(t, ValidateTopic(strings.Repeat("e", 251)))
	err := n.validateSubscription(messaging.Subscription{Topic: strings.Repeat("e", 200), Name: strings.Repeat("n", 50)})
	require.ErrorIs(t, err, event.ErrInvalid)
	require.ErrorContains(t, err, "shorten one of the three")
}

// The lane of a key is a part of the format: programs of different versions publish to the same queues.
func TestLanesNeverChange(t *testing.T) {
	t.Parallel()
	got := map[string]int{}
	for _, key := range []string{"", "a", "order-1", "order-2", "Käse 🙂"} {
		got[key] = laneOf(key, "id")
	}
	require.Equal(t, map[string]int{"": 0, "a": 12, "order-1": 13, "order-2": 20, "Käse 🙂": 5}, got)
	require.Equal(t, "order._x2A_.@31", laneKey("order.*", 31))
}

func TestDeliveryLimitIsOff(t *testing.T) {
	t.Parallel()
	require.NotContains(t, queueArgs(3, messaging.Failover), "x-delivery-limit", "3.10 has none, and refuses a negative one")
	require.Equal(t, -1, queueArgs(4, messaging.Failover)["x-delivery-limit"], "version 4 has a default of 20")
	require.Equal(t, -1, queueArgs(5, messaging.Shared)["x-delivery-limit"])
}

// A queue that somebody has made in another way is an error that names the queue, the argument and the command, and keeps its messages.
func TestQueueWithOtherArguments(t *testing.T) {
	t.Parallel()
	b := connect(t, config(server(t).URL))
	for argument, value := range map[string]any{
		"x-queue-type": "classic", "x-max-length": 5, "x-message-ttl": 60000, "x-delivery-limit": 3, "x-dead-letter-exchange": "elsewhere",
		"x-expires": 60000, "x-single-active-consumer": false,
	} {
		s := billing("foreign" + argument)
		queue := queueName(b.topology.names.of(s.Topic, s.Name), 0)
		args := queueArgs(3, messaging.Failover)
		args[argument] = value
		operator(t, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(queue, true, false, false, false, args)
			return err
		})
		foreign(t, "", queue, amqp.Publishing{DeliveryMode: amqp.Persistent})
		_, err := b.Subscribe(patient(t), s)
		_, isTopic := errors.AsType[*messaging.TopicError](err)
		require.True(t, isTopic, "%s: %v", argument, err)
		require.ErrorContains(t, err, queue)
		require.ErrorContains(t, err, "'"+argument+"'")
		require.ErrorContains(t, err, "rabbitmqctl delete_queue")
		operator(t, func(ch *amqp.Channel) error {
			deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
			require.NoError(t, err)
			await.Receive(t, deliveries, "the message in the queue with %s", argument)
			return nil
		})
	}
}

func TestCheckMakesNothing(t *testing.T) {
	t.Parallel()
	cfg := config(server(t).URL)
	cfg.Declare = Check
	b := connect(t, cfg)
	declared(t, billing("checked-too")) // the exchange of all topics exists
	err := b.Declare(patient(t), nil, []messaging.Subscription{billing("checked")})
	require.ErrorContains(t, err, `no exchange 'oncebox:checked:billing'`)
	require.ErrorContains(t, err, "ONCEBOX_RABBITMQ_DECLARE")
	declared(t, billing("checked"))
	require.NoError(t, b.Declare(patient(t), nil, []messaging.Subscription{billing("checked")}))

	cfg.Queues = 4
	err = connect(t, cfg).Declare(patient(t), nil, []messaging.Subscription{billing("checked")})
	require.ErrorIs(t, err, errLayout, "fewer queues than there are")
	operator(t, func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete("oncebox:checked:billing:5", false, false, false)
		return err
	})
	err = b.Declare(patient(t), nil, []messaging.Subscription{billing("checked")})
	require.ErrorContains(t, err, `no queue 'oncebox:checked:billing:5'`)
}

func TestAnotherDatabase(t *testing.T) {
	t.Parallel()
	s := billing("owned")
	s.Source, s.Installation = "Käse & Co", "one"
	b := declared(t, s)
	require.NoError(t, b.Declare(patient(t), nil, []messaging.Subscription{s}))
	other := s
	other.Installation = "two"
	err := b.Declare(patient(t), nil, []messaging.Subscription{other})
	found, ok := errors.AsType[*messaging.InstallationError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, "one", found.Owner)
	require.True(t, messaging.IsPermanent(err))
	other = s
	other.Source = "bank"
	err = b.Declare(patient(t), nil, []messaging.Subscription{other})
	source, ok := errors.AsType[*messaging.SourceError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, "Käse & Co", source.Owner)
	require.Contains(t, source.Mend, "oncebox:owned:billing:source")
	cfg := config(server(t).URL)
	cfg.Declare = Check
	checks := connect(t, cfg)
	require.NoError(t, checks.Declare(patient(t), nil, []messaging.Subscription{s}))
	_, ok = errors.AsType[*messaging.SourceError](checks.Declare(patient(t), nil, []messaging.Subscription{other}))
	require.True(t, ok, "a program that only checks")
	cfg.URL = user(t, "^$", "^oncebox", "^oncebox")
	require.NoError(t, connect(t, cfg).Declare(patient(t), nil, []messaging.Subscription{other}), "the broker does not say to this user who the owner is")
	operator(t, func(ch *amqp.Channel) error { return ch.ExchangeDelete("oncebox:owned:billing:source", false, false) })
	require.NoError(t, checks.Declare(patient(t), nil, []messaging.Subscription{other}))
	operator(t, func(ch *amqp.Channel) error {
		err := ch.ExchangeDeclarePassive("oncebox:owned:billing:source", amqp.ExchangeFanout, true, false, true, false, nil)
		require.True(t, isCode(err, amqp.NotFound), "a program that only checks stores no owner: %v", err)
		return nil
	})
	require.NoError(t, b.Declare(patient(t), nil, []messaging.Subscription{{Topic: "owned", Name: "billing", Source: "bank"}}), "after the mend")
}

// user makes a user with these permissions, and returns the URL with which it connects.
func user(t *testing.T, configure, write, read string) string {
	t.Helper()
	s, name := server(t), strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
	require.NoError(t, s.put("/users/"+name, `{"password":"secret","tags":""}`))
	require.NoError(t, s.put("/permissions/"+s.vhost+"/"+name, fmt.Sprintf(`{"configure":%q,"write":%q,"read":%q}`, configure, write, read)))
	t.Cleanup(func() {
		if err := s.remove("/users/" + name); err != nil { // a test may have deleted it
			require.ErrorContains(t, err, "404")
		}
	})
	u, err := url.Parse(s.URL)
	require.NoError(t, err)
	u.User = url.UserPassword(name, "secret")
	return u.String()
}

func TestPermissions(t *testing.T) {
	t.Parallel()
	declared(t, billing("guarded"))
	t.Run("may not make", func(t *testing.T) {
		t.Parallel()
		b := connect(t, config(user(t, "^$", "^oncebox", "^oncebox")))
		_, err := b.Subscribe(patient(t), billing("guarded"))
		require.ErrorContains(t, err, "rabbitmqctl set_permissions")
		_, isTopic := errors.AsType[*messaging.TopicError](err)
		require.True(t, isTopic, "%v", err)
	})
	t.Run("may not read", func(t *testing.T) {
		t.Parallel()
		cfg := config(user(t, "^$", "^oncebox", "^$"))
		cfg.Declare = Check
		_, err := connect(t, cfg).Subscribe(patient(t), billing("guarded"))
		require.ErrorContains(t, err, "grant read")
		_, isTopic := errors.AsType[*messaging.TopicError](err)
		require.True(t, isTopic, "%v", err)
	})
	t.Run("may not write", func(t *testing.T) {
		t.Parallel()
		b := connect(t, config(user(t, "^$", "^$", "^$")))
		msgs := []event.Envelope{envelope("guarded", "a", 1), envelope("guarded", "b", 1)}
		failed := failedOf(t, b.Publish(patient(t), msgs))
		found, isTopic := errors.AsType[*messaging.TopicError](failed[0])
		require.True(t, isTopic, "%v", failed)
		require.Equal(t, "guarded", found.Topic)
		require.ErrorContains(t, found, "rabbitmqctl set_permissions")
		require.Len(t, failed, 2)
	})
	t.Run("may not enter", func(t *testing.T) {
		t.Parallel()
		cfg := config(server(t).URL)
		cfg.URL = strings.Replace(cfg.URL, "guest:guest", "guest:wrong", 1)
		_, err := Connect(patient(t), cfg)
		require.Error(t, err, "waiting does not mend it")
		require.NotErrorIs(t, err, messaging.ErrBrokerDown)
		require.NotContains(t, err.Error(), "wrong")
		u, err := url.Parse(server(t).URL)
		require.NoError(t, err)
		u.Path = "/nowhere"
		cfg.URL = u.String()
		_, err = Connect(patient(t), cfg)
		require.ErrorContains(t, err, "nowhere", "the virtual host")
	})
	t.Run("enough for all", func(t *testing.T) {
		t.Parallel()
		b := connect(t, config(user(t, "^oncebox", "^oncebox", "^oncebox")))
		s := billing("allowed")
		s.Source, s.Installation = "shop", "one"
		require.NoError(t, b.Declare(patient(t), nil, []messaging.Subscription{s}))
		require.NoError(t, b.Publish(patient(t), []event.Envelope{envelope("allowed", "a", 1)}))
	})
}

// failedOf returns the errors of a call of Publish by index.
func failedOf(t *testing.T, err error) map[int]error {
	t.Helper()
	partial, ok := errors.AsType[*messaging.PublishError](err)
	require.True(t, ok, "%v", err)
	return partial.Failed
}

// A program that knows no lanes publishes with the topic alone. Its message goes to the subscriptions of this topic, and not to those of a topic that
// is the beginning of this one.
func TestProgramWithoutLanes(t *testing.T) {
	t.Parallel()
	b := declared(t, billing("plain"))
	require.NoError(t, b.Declare(patient(t), nil, []messaging.Subscription{billing("plain.created"), {Topic: "plain", Name: "all", Type: messaging.Shared}}))
	foreign(t, "oncebox", "plain.created", amqp.Publishing{MessageId: "m"})
	require.Equal(t, "m", receive(t, subscribe(t, b, billing("plain.created"))).ID)
	require.NoError(t, b.Publish(patient(t), []event.Envelope{envelope("plain", "a", 1)}))
	for _, s := range []messaging.Subscription{billing("plain"), {Topic: "plain", Name: "all", Type: messaging.Shared}} {
		require.Equal(t, envelope("plain", "a", 1).ID, receive(t, subscribe(t, b, s)).ID, "the first message")
	}
}
