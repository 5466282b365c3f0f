package command

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/brokers"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/messaging/pulsar"
)

// stranger is a broker of somebody else, whose adapter has no optional method.
func stranger(b *memory.Broker) brokers.Kind {
	type plain struct {
		messaging.Publisher
		messaging.Subscriber
		io.Closer
	}
	connect := func(context.Context, brokers.Options) (brokers.Connection, error) {
		if b == nil {
			return nil, errors.New("no such address")
		}
		return plain{b, b, b}, nil
	}
	return brokers.Kind{Name: "stranger", Title: "Stranger", Example: "stranger://localhost", Connect: connect}
}

// with runs a command of a program that is built with the kinds, on the tables of the shop.
func (s *shop) with(kinds []brokers.Kind, args ...string) answer {
	s.t.Helper()
	return with(s.t, kinds, append([]string{"--database-url", pgtest.URL(s.t), "--schema", s.Schema}, args...)...)
}

// with runs a command of a program that is built with the kinds.
func with(t *testing.T, kinds []brokers.Kind, args ...string) answer {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(t.Context(), &cli.Terminal{Out: &out, Errs: &errs}, kinds, append([]string{"oncebox"}, args...))
	return answer{code, out.String(), errs.String()}
}

func unset(t *testing.T) {
	t.Helper()
	for _, name := range []string{"PULSAR_URL", "ONCEBOX_PULSAR_URL", "ONCEBOX_NATS_URL", "ONCEBOX_KAFKA_URL", "ONCEBOX_RABBITMQ_URL", "ONCEBOX_STRANGER_URL"} {
		t.Setenv(name, "")
	}
	t.Setenv("ONCEBOX_SOURCE", "shop")
}

// away is a database that does not answer.
const away = "postgres://oncebox@127.0.0.1:1/none"

// Each command that uses the broker ends at once, before it has changed or shown anything, or asked the database.
func TestAWrongBrokerIsAnErrorAtTheStart(t *testing.T) {
	s := newShop(t)
	for name, c := range map[string]struct {
		set  []string
		args []string
		says string
	}{
		"unknown": {args: []string{"--broker", "redis"}, says: `there is no broker "redis": give pulsar, nats, kafka, rabbitmq or none`},
		"two": {
			set: []string{"ONCEBOX_PULSAR_URL", "ONCEBOX_NATS_URL"}, says: "ONCEBOX_PULSAR_URL and ONCEBOX_NATS_URL are both set: unset the variable of the " +
				"broker that is not meant, or name the broker with --broker",
		},
		"missing": {
			args: []string{"--broker", "pulsar"}, says: "the broker pulsar needs an address: set ONCEBOX_PULSAR_URL, for example to pulsar://localhost:6650",
		},
		"built without": {
			set: []string{"ONCEBOX_NATS_URL"},
			says: "ONCEBOX_NATS_URL is set, but this program is built without it: run oncebox-nats (go install " +
				"github.com/oncebox/oncebox/messaging/nats/cmd/oncebox-nats@latest)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			unset(t)
			for _, variable := range c.set {
				t.Setenv(variable, "pulsar://127.0.0.1:1")
			}
			for _, command := range []string{"relay", "relay --listen 127.0.0.1:0", "doctor", "status", "status --watch", "stuck", "consumers list"} {
				a := with(t, []brokers.Kind{pulsar.Kind()}, append(append([]string{"--database-url", away}, c.args...), strings.Fields(command)...)...)
				require.Equal(t, cli.ExitFailed, a.code, command)
				require.Empty(t, a.out, command)
				require.Equal(t, "oncebox: "+c.says+"\n", a.errs, command)
			}
			require.NotEqual(t, cli.ExitFailed, s.with([]brokers.Kind{pulsar.Kind()}, append(c.args, "dead", "list")...).code, "it needs no broker")
		})
	}
}

// The address of a broker that nobody knows is a mistake for each command, because the service would ignore it too.
func TestTheAddressOfAnUnknownBrokerIsAnError(t *testing.T) {
	unset(t)
	t.Setenv("ONCEBOX_REDIS_URL", "redis://localhost:6379")
	for _, command := range []string{"relay", "doctor", "status", "dead list", "migrate up"} {
		a := with(t, []brokers.Kind{pulsar.Kind()}, append([]string{"--database-url", away}, strings.Fields(command)...)...)
		require.Equal(t, cli.ExitFailed, a.code, command)
		require.Contains(t, a.errs, "ONCEBOX_REDIS_URL does not exist: the addresses of brokers are ONCEBOX_PULSAR_URL, ONCEBOX_NATS_URL, "+
			"ONCEBOX_KAFKA_URL and ONCEBOX_RABBITMQ_URL, or list it in ONCEBOX_IGNORE if it is another program's", command)
	}
}

// A relay publishes to a broker. The mistake is said before the database is waited for, which may take for ever.
func TestRelayWithoutABroker(t *testing.T) {
	unset(t)
	for says, args := range map[string][]string{
		"ONCEBOX_PULSAR_URL is not set": {"relay"}, "--broker is none": {"relay", "--broker", "none"},
	} {
		says = "oncebox: the relay needs a broker, and " + says + ": set the variable, for example to pulsar://localhost:6650\n"
		require.Equal(t, says, with(t, []brokers.Kind{pulsar.Kind()}, append([]string{"--database-url", away}, args...)...).errs)
	}
	t.Setenv("ONCEBOX_PULSAR_URL", "nats://localhost:4222")
	a := with(t, []brokers.Kind{pulsar.Kind()}, "--database-url", away, "relay")
	require.Equal(t, cli.ExitFailed, a.code)
	require.Contains(t, a.errs, "nats://")
}

// An adapter need not be able to answer. The commands say so, and do the rest.
func TestABrokerThatCannotAnswer(t *testing.T) {
	unset(t)
	t.Setenv("ONCEBOX_STRANGER_URL", "stranger://localhost")
	t.Setenv("ONCEBOX_IGNORE", "ONCEBOX_STRANGER_*") // adapters of others are not known to package config
	s := newShop(t)
	kinds := []brokers.Kind{stranger(memory.New(nil))}
	for _, command := range []string{"status", "consumers list", "stuck"} {
		require.Contains(t, s.with(kinds, strings.Fields(command)...).errs,
			"Stranger does not report how many messages wait, so these numbers were stored by the processes", command)
	}
	require.Contains(t, s.with(kinds, "doctor").out, "unknown (broker): this check could not be made: the adapter of Stranger cannot examine its broker")

	kinds = []brokers.Kind{stranger(nil)}
	require.Contains(t, s.with(kinds, "doctor").out, "problem (connection): the service could not connect to the broker: no such address")
	a := s.with(kinds, "status")
	require.Equal(t, cli.ExitFailed, a.code)
	require.Contains(t, a.errs, "with --broker none the command shows the numbers that the processes of the service have stored: no such address")
	a = s.with(kinds, "--broker", "none", "status")
	require.Zero(t, a.code, a.errs)
	require.NotContains(t, s.with(kinds, "--broker", "none", "doctor").out, "(connection)")
}
