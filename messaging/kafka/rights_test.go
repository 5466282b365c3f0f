package kafka

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// rights are a cluster with the user alice, who has the rights that a test grants, and an administrator.
type rights struct {
	admin *kadm.Client
	cfg   *Config
}

func TestRights(t *testing.T) {
	t.Parallel()
	c := cluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser(Plain, "root", "secret"), kfake.User(Plain, "alice", "secret"))
	cfg := configOf(c.ListenAddrs()...)
	cfg.SASL, cfg.Username, cfg.Password = Plain, "alice", "secret"
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.SASL(plain.Auth{User: "root", Pass: "secret"}.AsMechanism()))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	testRights(t, rights{kadm.NewClient(client), cfg})
}

// group in place of a topic's name is the consumer group of billing.
const group = ":group"

// change grants or takes rights on a topic; the topic is named as the program names it.
func (rs rights) change(t *testing.T, grant bool, topic string, operations ...kadm.ACLOperation) {
	t.Helper()
	acls := kadm.NewACLs().Allow("User:alice").AllowHosts("*").Operations(operations...).ResourcePatternType(kadm.ACLPatternLiteral)
	if topic == group {
		acls = acls.Groups(rs.cfg.names().Group(billing))
	} else {
		acls = acls.Topics(rs.cfg.names().FullName(topic))
	}
	if grant {
		_, err := rs.admin.CreateACLs(t.Context(), acls)
		require.NoError(t, err)
		return
	}
	_, err := rs.admin.DeleteACLs(t.Context(), acls)
	require.NoError(t, err)
}

func (rs rights) grant(t *testing.T, topic string, operations ...kadm.ACLOperation) {
	t.Helper()
	rs.change(t, true, topic, operations...)
}

func (rs rights) take(t *testing.T, topic string, operations ...kadm.ACLOperation) {
	t.Helper()
	rs.change(t, false, topic, operations...)
}

// testRights gives alice one right after the other. Until she has them all, each call fails with the right that is missing; nothing is lost. A change
// reaches the broker a moment later.
func testRights(t *testing.T, rs rights) {
	t.Helper()
	declared := *rs.cfg
	declared.Topics = []string{"order"}
	ends := func(says string, call func() error) {
		t.Helper()
		eventually(t, func() bool {
			err := call()
			if err == nil || says == "" {
				return err == nil && says == ""
			}
			return strings.Contains(requireTrouble(t, err), says)
		}, says+" in the error")
	}
	refused := func(says string) {
		t.Helper()
		ends(says, func() error {
			b, err := Connect(t.Context(), &declared)
			if err == nil {
				err = b.Close()
			}
			return err
		})
	}
	full := rs.cfg.names().FullName("order")
	commands := func(right string) string {
		return "kafka-acls.sh --bootstrap-server " + rs.cfg.hosts()[0] + " --add --allow-principal 'User:alice' --operation " + right +
			" --topic '" + full + "'"
	}
	refused(commands("WRITE"))
	rs.grant(t, "order", kadm.OpDescribe)
	refused("CREATE to make it")
	rs.grant(t, "order", kadm.OpCreate)
	refused("no right WRITE on topic " + full)
	refused(commands("WRITE"))

	b := connect(t, rs.cfg)
	msgs := series("order", "a", 3)
	publish := func(msgs []event.Envelope) func() error {
		return func() error {
			err := b.Publish(t.Context(), msgs)
			if err == nil {
				return nil
			}
			failed := failures(t, err)
			require.Len(t, failed, len(msgs), "some were stored, and the right is the same for all")
			return failed[0]
		}
	}
	ends(commands("WRITE"), publish(msgs))
	rs.grant(t, "order", kadm.OpWrite)
	ends("", publish(msgs))
	refused("")
	rs.take(t, "order", kadm.OpWrite)
	ends(commands("WRITE"), publish(series("order", "taken", 3)))
	rs.grant(t, "order", kadm.OpWrite)
	ends("", publish(series("order", "b", 3)))

	unread := func(says string) {
		t.Helper()
		ends(says, func() error { return b.Declare(t.Context(), nil, []messaging.Subscription{billing}) })
		_, err := b.Subscribe(t.Context(), billing)
		require.Contains(t, requireTrouble(t, err), says)
	}
	unread(commands("READ"))
	rs.grant(t, "order", kadm.OpRead)
	unread("--operation READ --group '" + rs.cfg.names().Group(billing) + "'")
	rs.grant(t, group, kadm.OpRead)
	ends("", func() error { return b.Declare(t.Context(), nil, []messaging.Subscription{billing}) })
	r := subscribe(t, b, billing)
	seen := map[string]int64{} // until the right was taken, copies of "taken" may have been stored
	for seen["a"] < 3 || seen["b"] < 3 {
		m := receive(t, r)
		seen[m.RoutingKey] = max(seen[m.RoutingKey], m.Sequence)
		require.NoError(t, r.Ack(t.Context(), m))
	}

	// The right to read is taken while messages come. The receiver ends with the reason, and the next one goes on.
	rs.take(t, "order", kadm.OpRead)
	ctx, sent := soon(t), int64(0)
	var err error
	for err == nil {
		require.NoError(t, b.Publish(ctx, series("order", "c", int(sent)+1)[sent:]))
		sent++
		var m *messaging.Message
		if m, err = r.Receive(ctx); err == nil {
			seen[m.RoutingKey] = max(seen[m.RoutingKey], m.Sequence)
			require.NoError(t, r.Ack(ctx, m))
		}
	}
	require.Contains(t, requireTrouble(t, err), "READ to receive")
	require.NoError(t, r.Close())
	rs.grant(t, "order", kadm.OpRead)
	ends("", func() error { return b.Declare(t.Context(), nil, []messaging.Subscription{billing}) })
	again := subscribe(t, b, billing)
	for seen["c"] < sent {
		m := receive(t, again)
		require.LessOrEqual(t, m.Sequence, seen[m.RoutingKey]+1, "a message is missing")
		seen[m.RoutingKey] = max(seen[m.RoutingKey], m.Sequence)
		require.NoError(t, again.Ack(t.Context(), m))
	}
}
