package kafka

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

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

// testRights gives alice one right after the other. Until she has them all, each call fails with the right that is missing; nothing is lost.
func testRights(t *testing.T, rs rights) {
	t.Helper()
	declared := *rs.cfg
	declared.Topics = []string{"order"}
	refused := func(says string) {
		t.Helper()
		_, err := Connect(t.Context(), &declared)
		require.Contains(t, requireTrouble(t, err), says, "the start says what is missing")
	}
	full := rs.cfg.names().FullName("order")
	commands := func(right string) string {
		return "kafka-acls.sh --bootstrap-server " + rs.cfg.hosts()[0] + " --add --allow-principal 'User:alice' --operation " + right + " --topic '" + full + "'"
	}
	refused(commands("WRITE"))
	rs.grant(t, "order", kadm.OpDescribe)
	refused("CREATE to make it")
	rs.grant(t, "order", kadm.OpCreate)
	refused("no right WRITE on topic " + full)
	refused(commands("WRITE"))

	b := connect(t, rs.cfg)
	msgs := series("order", "a", 3)
	for _, err := range failures(t, b.Publish(t.Context(), msgs)) {
		require.Contains(t, requireTrouble(t, err), commands("WRITE"))
	}
	rs.grant(t, "order", kadm.OpWrite)
	require.NoError(t, b.Publish(t.Context(), msgs), "the right was granted while the process runs")
	connect(t, &declared)
	rs.take(t, "order", kadm.OpWrite)
	more := series("order", "b", 3)
	for _, err := range failures(t, b.Publish(t.Context(), more)) {
		requireTrouble(t, err)
	}
	rs.grant(t, "order", kadm.OpWrite)
	require.NoError(t, b.Publish(t.Context(), more))

	unread := func(says string) {
		t.Helper()
		_, err := b.Subscribe(t.Context(), billing)
		require.Contains(t, requireTrouble(t, err), says)
		require.Contains(t, requireTrouble(t, b.Declare(t.Context(), nil, []messaging.Subscription{billing})), says)
	}
	unread(commands("READ"))
	rs.grant(t, "order", kadm.OpRead)
	unread("--operation READ --group '" + rs.cfg.names().Group(billing) + "'")
	rs.grant(t, group, kadm.OpRead)
	r := subscribe(t, b, billing)
	for range 6 {
		require.NoError(t, r.Ack(t.Context(), receive(t, r)))
	}

	// The right to read is taken while messages come. The receiver ends with the reason, and the next one goes on.
	rs.take(t, "order", kadm.OpRead)
	require.NoError(t, b.Publish(t.Context(), series("order", "c", 3)))
	ctx := soon(t)
	_, err := r.Receive(ctx)
	require.Contains(t, requireTrouble(t, err), "READ to receive")
	require.NoError(t, r.Close())
	rs.grant(t, "order", kadm.OpRead)
	requireSequences(t, subscribe(t, b, billing), 1, 2, 3)
}
