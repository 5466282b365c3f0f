package nats

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/diagnosis"
)

// user returns a user who may publish and subscribe to everything but these subjects.
func user(name string, publish, subscribe []string) *natsserver.User {
	return &natsserver.User{Username: name, Password: "p", Permissions: &natsserver.Permissions{
		Publish: &natsserver.SubjectPermission{Deny: publish}, Subscribe: &natsserver.SubjectPermission{Deny: subscribe},
	}}
}

// permitted returns the configuration of a user of a server that has these users, and one who may do everything.
func permitted(t *testing.T, users ...*natsserver.User) func(name string) *Config {
	t.Helper()
	server := start(t, t.TempDir(), func(o *natsserver.Options) { o.Users = append([]*natsserver.User{user("all", nil, nil)}, users...) })
	return func(name string) *Config {
		cfg := config(server.URL())
		cfg.User, cfg.Password = name, "p"
		return cfg
	}
}

// Without a permission, Publish says so at once: the server never answers.
func TestMissingPermissionToPublish(t *testing.T) {
	t.Parallel()
	as := permitted(t, user("topic", []string{"oncebox.order.*"}, nil), user("info", []string{"$JS.API.STREAM.INFO.>"}, nil),
		user("nothing", []string{">"}, nil))
	require.NoError(t, connect(t, as("all")).Publish(t.Context(), events(1, 1)))
	for _, name := range []string{"topic", "info", "nothing"} {
		cfg := as(name)
		cfg.OperationTimeout = time.Hour // whoever waits for the answer waits for ever
		failed := failures(t, connect(t, cfg), events(2, 3))
		topic, ok := errors.AsType[*messaging.TopicError](failed[0])
		require.True(t, ok, "%s: %v", name, failed[0])
		require.ErrorContains(t, topic, "permission")
		require.Error(t, failed[1], name)
	}
	require.Equal(t, 1, stored(t, connect(t, as("all"))))
}

// Without a permission, Subscribe says so, or the receiver does. The message stays for a process that has it.
func TestMissingPermissionToConsume(t *testing.T) {
	t.Parallel()
	as := permitted(t, user("create", []string{"$JS.API.CONSUMER.CREATE.>"}, nil), user("info", []string{"$JS.API.CONSUMER.INFO.>"}, nil),
		user("reset", []string{"$JS.API.CONSUMER.RESET.>"}, nil), user("next", []string{"$JS.API.CONSUMER.MSG.NEXT.>"}, nil),
		user("ack", []string{"$JS.ACK.>"}, nil), user("members", []string{"oncebox.members.>"}, []string{"oncebox.members.>"}))
	all := connect(t, as("all"))
	require.NoError(t, all.Publish(t.Context(), events(1, 1)))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, name := range []string{"create", "info", "reset", "next", "ack"} {
		cfg := as(name)
		cfg.OperationTimeout = time.Hour
		s := messaging.Subscription{Topic: "order", Name: name}
		if name != "create" {
			require.NoError(t, all.Declare(ctx, nil, []messaging.Subscription{s}))
		}
		r, err := connect(t, cfg).Subscribe(ctx, s)
		var m *messaging.Message
		if err == nil {
			m, err = r.Receive(ctx)
		}
		if m != nil {
			require.Equal(t, "ack", name)
			require.NoError(t, r.Ack(ctx, m), "nobody knows yet")
			_, err = r.Receive(ctx)
		}
		require.ErrorContains(t, err, "no permission", name)
		require.NotErrorIs(t, err, context.DeadlineExceeded, name)
		require.Equal(t, numbers(1, 1), receive(t, subscribe(t, all, s), 1, true), name)
	}
	r := subscribe(t, connect(t, as("members")), messaging.Subscription{Name: "members"})
	require.Equal(t, numbers(1, 1), receive(t, r, 1, true), "it does not know of others, and the server divides")
}

// A user who may not receive answers can do nothing, and learns it at once.
func TestMissingPermissionForAnswers(t *testing.T) {
	t.Parallel()
	as := permitted(t, user("deaf", nil, []string{"_INBOX.>"}))
	cfg := as("deaf")
	cfg.Required, cfg.OperationTimeout = false, time.Hour
	_, err := Connect(t.Context(), cfg)
	require.ErrorContains(t, err, "no permission to receive answers")
	cfg.InboxPrefix = "mine"
	require.NoError(t, connect(t, cfg).Publish(t.Context(), events(1, 1)))

	cfg = as("all")
	cfg.Password, cfg.Required = "wrong", false
	_, err = Connect(t.Context(), cfg)
	require.ErrorContains(t, err, "Authorization Violation")
}

// docs/brokers.md names the permissions that a user needs. They are enough, and each is needed.
func TestPermissionsOfThePage(t *testing.T) {
	t.Parallel()
	publish, subscribeTo := []string{"oncebox.>", "$JS.API.>", "$JS.ACK.>"}, []string{"_INBOX.>", "oncebox.members.>"}
	page, err := os.ReadFile("../../docs/brokers.md")
	require.NoError(t, err)
	require.Contains(t, strings.Join(strings.Fields(string(page)), " "), "needs the right to publish to `oncebox.>`, `$JS.API.>` and "+
		"`$JS.ACK.>`, and to subscribe to `_INBOX.>` and `oncebox.members.>`")
	exactly := func(name string, publish, subscribe []string) *natsserver.User {
		return &natsserver.User{Username: name, Password: "p", Permissions: &natsserver.Permissions{
			Publish: &natsserver.SubjectPermission{Allow: publish}, Subscribe: &natsserver.SubjectPermission{Allow: subscribe},
		}}
	}
	users := []*natsserver.User{exactly("page", publish, subscribeTo)}
	for _, left := range slices.Concat(publish, subscribeTo) {
		isLeft := func(s string) bool { return s == left }
		users = append(users, exactly(left, slices.DeleteFunc(slices.Clone(publish), isLeft), slices.DeleteFunc(slices.Clone(subscribeTo), isLeft)))
	}
	as := permitted(t, users...)

	// use does all that a service and the doctor do, and returns what the log says of permissions.
	use := func(name string) (string, error) {
		var log logbook.Book
		cfg := as(name)
		cfg.Telemetry.Logger, cfg.OperationTimeout = log.Logger(), time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		b, err := Connect(ctx, cfg)
		if err != nil {
			return log.String(), err
		}
		defer b.Close()
		for _, kind := range []messaging.SubscriptionType{messaging.Failover, messaging.Shared} {
			s := messaging.Subscription{Topic: "order", Name: kind.String() + "-" + rand.Text()[:8], Type: kind}
			first, err := b.Subscribe(ctx, s)
			if err != nil {
				return log.String(), err
			}
			if err := b.Publish(ctx, events(1, 2)); err != nil {
				return log.String(), err
			}
			if m, err := first.Receive(ctx); err != nil || first.Ack(ctx, m) != nil {
				return log.String(), err
			}
			_, err = first.Receive(ctx) // it may know of a refused acknowledgement
			if err = errors.Join(err, first.Close()); err != nil {
				return log.String(), err
			}
			if n := receive(t, subscribe(t, b, s), 1, true)[0]; n != 2 {
				return log.String(), fmt.Errorf("the acknowledgement is not stored: %d came again", n)
			}
		}
		_, err = b.ReadSubscription(ctx, "order", "billing")
		_, examined := b.Examine(ctx, diagnosis.Examination{})
		_, unused := b.Unused(ctx, "order")
		return log.String(), errors.Join(err, examined, unused)
	}
	said, err := use("page")
	require.NoError(t, err)
	require.NotContains(t, strings.ToLower(said), "permission")
	for _, u := range users[1:] {
		said, err := use(u.Username)
		require.True(t, err != nil || strings.Contains(strings.ToLower(said), "permission"), u.Username)
	}
}
