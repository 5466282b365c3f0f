package events

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
)

// LifeItem is the JSON output of show. Scripts use the names, so they never change.
type LifeItem struct {
	ID               string            `json:"id"`
	MessageKey       string            `json:"message_key,omitempty"`
	Type             string            `json:"type,omitempty"`
	Topic            string            `json:"topic,omitempty"`
	Tenant           string            `json:"tenant"`
	Source           string            `json:"source,omitempty"`
	AggregateType    string            `json:"aggregate_type,omitempty"`
	AggregateID      string            `json:"aggregate_id,omitempty"`
	AggregateVersion int64             `json:"aggregate_version,omitempty"`
	Sequence         int64             `json:"sequence,omitempty"`
	Key              string            `json:"key,omitempty"`
	TraceID          string            `json:"trace_id,omitempty"`
	Metadata         map[string]string `json:"metadata,omitempty"`
	History          []MomentItem      `json:"history"`
	Gone             string            `json:"gone,omitempty"`
	// Elsewhere is true if another service, Source, has recorded the event.
	Elsewhere bool `json:"recorded_elsewhere,omitempty"`
}

// MomentItem is one thing that happened to the event, in the JSON output of show. Without At it is the present state. With After it happened after At,
// with Before before At.
type MomentItem struct {
	At       *time.Time      `json:"at,omitempty"`
	After    bool            `json:"after,omitempty"`
	Before   bool            `json:"before,omitempty"`
	What     ops.What        `json:"what"`
	Consumer string          `json:"consumer,omitempty"`
	Attempts int             `json:"attempts,omitempty"`
	Error    string          `json:"error,omitempty"`
	Until    *time.Time      `json:"until,omitempty"`
	Behind   string          `json:"behind,omitempty"`
	Step     string          `json:"step,omitempty"`
	Actor    string          `json:"actor,omitempty"`
	Action   operator.Action `json:"action,omitempty"`
	Reason   string          `json:"reason,omitempty"`
}

// NewShow returns the command "oncebox show".
func NewShow(s *cli.Session) *cobra.Command {
	var sources []string
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show the whole life of an event: when it was recorded, published and handled, its errors, and the decisions of operators",
		Long: `Show the whole life of an event, or of a message from another system, from all tables. ID is the id of the event, or the message key that
other commands print. Published events have no index on the id, so all events of that day are read: about a second per million.
oncebox dead show prints payloads.

If a message was parked before a consumer handled it, the time beside "handled" is that of the parking. If an operator replayed or retried it, it was
handled after that; the time itself is not kept.`,
		Example: `  oncebox show 0193b2c4-6a1e-7c3d-9e58-1f2a3b4c5d6e
  oncebox show order-7 --source partner`,
		Args: cli.ExactlyOneID,
	}
	cmd.Flags().StringArrayVar(&sources, "source", nil, "where the message came from, for an id that is no UUID of version 7")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := s.OpenTables(cmd.Context()); err != nil {
			return err
		}
		found, err := s.View().Life(cmd.Context(), args[0], sources...)
		switch {
		// An unknown id has its own exit code, so a script can distinguish it from a database that does not answer.
		case errors.Is(err, ops.ErrUnknown):
			return cli.Exit(cli.ExitNothing, err)
		case err != nil:
			return err
		}
		list := make([]LifeItem, len(found))
		for n := range found {
			list[n] = lifeOf(&found[n])
		}
		return cli.Each(s, list, printLife)
	}
	return cmd
}

// lifeOf copies the fields, so the names of the JSON output do not change when a field of ops.Life is renamed.
func lifeOf(l *ops.Life) LifeItem {
	item := LifeItem{
		ID: l.ID, MessageKey: l.MessageKey, Type: l.Type, Topic: l.Topic, Tenant: l.Tenant, Source: l.Source, AggregateType: l.AggregateType,
		AggregateID: l.AggregateID, AggregateVersion: l.AggregateVersion, Sequence: l.Sequence, Key: l.Key, TraceID: l.TraceID, Metadata: l.Metadata,
		Gone: l.Gone, Elsewhere: l.Elsewhere, History: make([]MomentItem, len(l.History)),
	}
	for n, m := range l.History {
		item.History[n] = MomentItem{
			At: cli.TimeOf(m.At), After: m.After, Before: m.Before, What: m.What, Consumer: m.Consumer, Attempts: m.Attempts, Error: m.Error,
			Until: cli.TimeOf(m.Until), Behind: m.Behind,
			Step: m.Step, Actor: m.Actor, Action: m.Action, Reason: m.Reason,
		}
	}
	return item
}

func printLife(s *cli.Session, l *LifeItem) error {
	// An id of oncebox is its own message key, which need not be shown twice.
	key := l.MessageKey
	if key == l.ID {
		key = ""
	}
	sequence := ""
	if l.Sequence > 0 {
		sequence = strconv.FormatInt(l.Sequence, 10)
	}
	elsewhere := ""
	if l.Elsewhere {
		elsewhere = "recorded elsewhere (source " + l.Source + ")"
	}
	err := s.Pairs("id", l.ID, "message key", key, "type", l.Type, "topic", l.Topic, "tenant", l.Tenant, "source", l.Source,
		"aggregate", cli.Join(l.AggregateType, l.AggregateID), "key", l.Key, "sequence", sequence, "trace", l.TraceID, "outbox", elsewhere, "gone", l.Gone)
	if err != nil || len(l.History) == 0 {
		return err
	}
	fmt.Fprintln(s.Out)
	rows := make([][]string, len(l.History))
	for n := range l.History {
		// A moment without a time describes the present, for example that the event waits.
		m := &l.History[n]
		where, when := "outbox", "now"
		if m.Consumer != "" {
			where = "consumer " + m.Consumer
		}
		if m.At != nil {
			when = cli.Moment(*m.At)
			switch {
			case m.After:
				when = "after " + when
			case m.Before:
				when = "before " + when
			}
		}
		rows[n] = []string{when, where, string(m.What), m.detail()}
	}
	return s.Table([]string{"AT", "WHERE", "WHAT", ""}, rows)
}

// detail returns the fields of a moment besides its time and place.
func (m *MomentItem) detail() string {
	var parts []string
	for _, p := range []struct{ name, text string }{
		{"", string(m.Action)}, {"by ", m.Actor}, {"because ", m.Reason}, {"", m.Step}, {"behind ", m.Behind},
		{"tries ", cli.Number(m.Attempts)}, {"until ", cli.At(m.Until)}, {"error ", cli.Short(m.Error, 120)},
	} {
		if p.text != "" {
			parts = append(parts, p.name+p.text)
		}
	}
	return cli.Join(parts...)
}
