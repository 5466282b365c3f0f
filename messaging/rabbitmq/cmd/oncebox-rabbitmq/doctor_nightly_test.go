//go:build nightly

package main

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/commandtest"
	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/rabbitmq"
)

// shared is the server of all tests.
var shared struct {
	once   sync.Once
	server *devenv.RabbitMQServer
	err    error
}

// stop ends the server.
var stop = []func() error{func() error {
	if shared.server == nil {
		return nil
	}
	return shared.server.Stop()
}}

// start returns the server, on which a service shop has declared its topics.
func start(t *testing.T) *devenv.RabbitMQServer {
	t.Helper()
	shared.once.Do(func() {
		shared.server, shared.err = devenv.RabbitMQ(t.Context(), &devenv.Options{Volatile: true, Own: true})
	})
	require.NoError(t, shared.err)
	broker, err := rabbitmq.Connect(t.Context(), &rabbitmq.Config{URL: shared.server.URL, Queues: 1})
	require.NoError(t, err)
	require.NoError(t, broker.Declare(t.Context(), nil, []messaging.Subscription{{Topic: "order", Name: "billing", Source: "shop"}}))
	require.NoError(t, broker.Close())
	return shared.server
}

// manage calls the management plugin.
func manage(t *testing.T, method, path, body string) {
	t.Helper()
	_, err := shared.server.Manage(t.Context(), method, path, body)
	require.NoError(t, err)
}

// alone is the finding of each queue on a server that is no cluster.
const alone = "warning (broker): queue oncebox:order:billing:0: its messages are on one node only"

// Policies that drop messages are found, each with the command that mends it.
func TestDoctorFindsWhatHurts(t *testing.T) {
	server := start(t)
	p := commandtest.New(t, "oncebox-rabbitmq", "ONCEBOX_RABBITMQ_URL", server.URL, "ONCEBOX_RABBITMQ_MANAGEMENT_URL", server.ManagementURL)
	p.RequireFindings(alone)
	manage(t, http.MethodPut, "/policies/%2F/harm",
		`{"pattern":"^oncebox:order:","definition":{"delivery-limit":5,"message-ttl":60000,"max-length":100},"apply-to":"queues"}`)
	defer manage(t, http.MethodDelete, "/policies/%2F/harm", "")
	await.True(t, func() bool { return len(p.Doctor()) > 1 }, "the policy applies to the queue, which the server reports late")
	p.RequireFindings(alone,
		"problem (broker): queue oncebox:order:billing:0: it drops a message after 5 failed deliveries (delivery-limit)",
		"problem (broker): queue oncebox:order:billing:0: it drops a message after 60000 ms, handled or not (message-ttl)",
		"problem (broker): queue oncebox:order:billing:0: when it is full it drops its oldest message (max-length with overflow drop-head)",
	)
	found := p.Doctor("--topic", "invoice")
	require.Len(t, found, 1)
	require.Contains(t, found[0], "problem (broker): topic invoice: it has no queue of oncebox")
}

// Without the management plugin, without rights and without a server there is a finding: the command does not hang.
func TestDoctorCannotLook(t *testing.T) {
	server := start(t)
	manage(t, http.MethodPut, "/users/plain", `{"password":"p","tags":""}`)
	manage(t, http.MethodPut, "/permissions/%2F/plain", `{"configure":".*","write":".*","read":".*"}`)
	manage(t, http.MethodPut, "/users/stranger", `{"password":"p","tags":""}`)
	plain, management := "plain", server.ManagementURL
	as := func(url, user string) string { return strings.Replace(url, "guest:guest", user+":p", 1) }
	p := commandtest.New(t, "oncebox-rabbitmq", "ONCEBOX_RABBITMQ_URL", server.URL, "ONCEBOX_RABBITMQ_MANAGEMENT_URL", server.ManagementURL)
	for says, program := range map[string]*commandtest.Program{
		"set Config.ManagementURL (ONCEBOX_RABBITMQ_MANAGEMENT_URL)":               p.With("ONCEBOX_RABBITMQ_MANAGEMENT_URL", ""),
		"the user needs the tag monitoring":                                        p.With("ONCEBOX_RABBITMQ_MANAGEMENT_URL", as(management, plain)),
		"problem (connection): the service could not connect to the broker":        p.With("ONCEBOX_RABBITMQ_URL", as(server.URL, "stranger")),
		"problem (connection): the service could not connect to the broker at ONC": p.With("ONCEBOX_RABBITMQ_URL", "amqp://127.0.0.1:1"),
		"problem (connection): the service could not connect to the broker: rabbi": p.With("ONCEBOX_RABBITMQ_URL", as(server.URL, "guest")),
	} {
		program.RequireFindings(says)
	}
}
