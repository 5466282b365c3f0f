package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/inbox"
)

func newParked(s *session) *cobra.Command {
	return group("parked", "Messages that failed and are tried again, and those behind them", newParkedList(s), newParkedRetry(s), newParkedGiveUp(s))
}

// parkedSelection is which parked messages a command is about.
type parkedSelection struct {
	consumer, tenant, topic, kind, text string
}

func (f *parkedSelection) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.consumer, "consumer", "", "only those of this consumer")
	flags.StringVar(&f.tenant, "tenant", "", "only those of this tenant")
	flags.StringVar(&f.topic, "topic", "", "only those of this topic")
	flags.StringVar(&f.kind, "type", "", "only those of this event type")
	flags.StringVar(&f.text, "error", "", "only those whose last error contains this text, as it is written there")
}

func (f *parkedSelection) isEmpty() bool { return *f == parkedSelection{} }

func (f *parkedSelection) filter() inbox.ParkedFilter {
	return inbox.ParkedFilter{Consumer: f.consumer, TenantID: f.tenant, Topic: f.topic, Type: f.kind, Error: f.text}
}

// parkedItem is what list prints as JSON. The names stay.
type parkedItem struct {
	Consumer   string         `json:"consumer"`
	MessageKey string         `json:"message_key"`
	ID         string         `json:"id"`
	Type       string         `json:"type"`
	Topic      string         `json:"topic"`
	Tenant     string         `json:"tenant"`
	Source     string         `json:"source"`
	Key        string         `json:"key,omitempty"`
	State      inbox.KeyState `json:"state"`
	First      bool           `json:"first"`
	ParkedAt   time.Time      `json:"parked_at"`
	Attempts   int            `json:"attempts"`
	Next       *time.Time     `json:"next,omitempty"`
	Error      string         `json:"error,omitempty"`
}

func newParkedList(s *session) *cobra.Command {
	var (
		f     parkedSelection
		first bool
		limit int
	)
	cmd := &cobra.Command{
		Use: "list", Short: "List the messages that wait in the database, key by key, without their payloads", Args: noArgs,
		Long: `List the messages that wait in the database: those that failed, and those behind them, key by key. The first one of a key is tried; the others
follow when it is handled. --first lists only those that are tried.`,
		Example: `  oncebox parked list --first
  oncebox parked list --consumer billing --error "connection refused" --json`,
	}
	f.flags(cmd)
	cmd.Flags().BoolVar(&first, "first", false, "only the first one of each key")
	cmd.Flags().IntVar(&limit, "limit", 100, "list at most so many")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if limit < 1 {
			return usage(cmd, errors.New("--limit is below 1"))
		}
		if err := s.openTables(cmd.Context()); err != nil {
			return err
		}
		filter := f.filter()
		filter.FirstOnly = first
		page, err := s.inbox().Parked(cmd.Context(), filter, nil, limit+1)
		if err != nil {
			return err
		}
		list := make([]parkedItem, min(len(page), limit))
		for n := range list {
			p := &page[n]
			list[n] = parkedItem{
				p.Key.Consumer, p.Key.MessageKey, p.Envelope.ID, p.Envelope.Type, p.Envelope.Topic, p.Key.TenantID, p.Key.Source, p.OrderingKey,
				p.State, p.First, p.ParkedAt, p.Attempts, timeOf(p.DueAt), p.Error,
			}
		}
		if err := s.printParked(list); err != nil || len(page) <= limit {
			return err
		}
		all, err := s.inbox().CountParked(cmd.Context(), filter)
		fmt.Fprintf(s.errs, "%d of %d shown: --limit %d shows all.\n", len(list), all, all)
		return err
	}
	return cmd
}

func (s *session) printParked(list []parkedItem) error {
	if s.json {
		return s.document(list)
	}
	if len(list) == 0 {
		fmt.Fprintln(s.errs, "No such message waits.")
		return nil
	}
	rows := make([][]string, len(list))
	for n := range list {
		p := &list[n]
		tries, next := "behind", ""
		if p.First {
			tries, next = strconv.Itoa(p.Attempts), at(p.Next)
		}
		rows[n] = []string{moment(p.ParkedAt), p.Consumer, p.MessageKey, p.Type, p.Tenant, short(p.Key, 40), tries, next, short(p.Error, 80)}
	}
	return s.table([]string{"PARKED", "CONSUMER", "MESSAGE KEY", "TYPE", "TENANT", "KEY", "TRIES", "NEXT", "ERROR"}, rows)
}
