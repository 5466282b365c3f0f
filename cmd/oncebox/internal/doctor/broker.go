package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/messaging/brokers"
	"github.com/oncebox/oncebox/messaging/diagnosis"
	"github.com/oncebox/oncebox/telemetry"
)

// broker has the broker examined by its adapter, with what the database knows about the service. Its findings belong to the checks "connection" and
// "broker".
func (e *examination) broker(ctx context.Context) (found []Finding, err error) {
	// The findings say what the log would say.
	options := brokers.Options{Env: config.Env, Brief: true, Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)}}
	connection, err := e.Broker.Connect(ctx, options)
	if err != nil {
		return []Finding{finding(diagnosis.Connection, Problem,
			"mend what the error says: the broker, the network between, the credentials, or the variables of the broker, such as "+e.Broker.Variable(),
			"the service could not connect to the broker: %v", err)}, nil
	}
	defer func() { err = errors.Join(err, connection.Close()) }()
	examiner, ok := connection.(diagnosis.Examiner)
	if !ok {
		return nil, fmt.Errorf("the adapter of %s cannot examine its broker: use the broker's own tools", e.Broker.Title)
	}
	about := diagnosis.Examination{
		Topics: e.Topics, Source: e.Config.UoW.Source, Prefix: e.Config.UoW.TopicPrefix, Remembers: e.remembered(),
	}
	// Findings about this database's processes come first: they often explain what the topics below show.
	processes, unknown := e.processes(ctx, &about)
	list, err := examiner.Examine(ctx, about)
	if slices.ContainsFunc(list, func(f Finding) bool { return f.Check == diagnosis.Connection }) {
		processes = nil // they say that the broker answers
	}
	return append(processes, list...), errors.Join(unknown, err)
}

// processes adds what the database knows to the examination, and finds processes that do not reach the broker. Without tables nothing is known.
func (e *examination) processes(ctx context.Context, about *diagnosis.Examination) (found []Finding, err error) {
	if there, err := e.hasTables(ctx); err != nil || !there {
		return nil, err
	}
	if about.Owners, err = e.inbox.Owners(ctx); err != nil {
		return nil, err
	}
	about.TakeOver = func(ctx context.Context, installation string) (string, error) {
		id, statement, err := e.inbox.KnownInstallation(ctx, installation)
		if id == installation {
			statement = ""
		}
		return statement, err
	}
	found, about.CutOff, err = e.cutOff(ctx)
	if err != nil {
		return found, err
	}
	late, err := e.relays(ctx)
	return append(found, late...), err
}
