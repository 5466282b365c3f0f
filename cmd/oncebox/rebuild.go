package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/inbox/readmodel"
)

// modelItem is what rebuild status prints as JSON. The names stay.
type modelItem struct {
	Name       string     `json:"name"`
	State      string     `json:"state"`
	Generation int64      `json:"generation"`
	Consumer   string     `json:"consumer"`
	Events     int64      `json:"events"`
	Checkpoint string     `json:"checkpoint,omitempty"`
	Waiting    int64      `json:"waiting"`
	StartedAt  *time.Time `json:"started_at,omitempty"`
	UpdatedAt  *time.Time `json:"updated_at,omitempty"`
}

// The states of a read model.
const (
	modelLive        = "live"
	modelRebuilding  = "rebuilding"  // a process is at it
	modelInterrupted = "interrupted" // none is: Model.Resume goes on
)

func newRebuild(s *session) *cobra.Command {
	status := &cobra.Command{
		Use: "status [READ_MODEL...]", Short: "Show the rebuilds of read models: how far they are, and how many live messages wait",
		Long: `Show the rebuilds of read models: how far they are, and how many live messages wait (up to 10,000). A read model is

  live          its read model has all that came
  rebuilding    a process reads the history, and live messages wait for it
  interrupted   no process does, and live messages wait: have the service call Model.Resume

A rebuild is started by the service, for it has the handler: see "Rebuild a read model" in docs/runbook.md.

Exit code 0: none is interrupted. 3: one is. 4: there is no read model of a name that was given.`,
		Example: `  oncebox rebuild status
  oncebox rebuild status balances --json`,
	}
	status.RunE = func(cmd *cobra.Command, names []string) error {
		if err := s.openTables(cmd.Context()); err != nil {
			return err
		}
		all, err := readmodel.List(cmd.Context(), s.inbox())
		if err != nil {
			return err
		}
		list := make([]modelItem, 0, len(all))
		byName := map[string]modelItem{}
		for n := range all {
			item := modelOf(&all[n])
			byName[item.Name] = item
			list = append(list, item)
		}
		if len(names) > 0 {
			list = list[:0]
		}
		for _, name := range names {
			item, found := byName[name]
			if !found {
				return &exitError{exitNothing, fmt.Errorf("there is no read model %q", name)}
			}
			list = append(list, item)
		}
		return s.printModels(list)
	}
	return group("rebuild", "Rebuilds of read models", status)
}

func modelOf(p *readmodel.Status) modelItem {
	state := modelLive
	switch {
	case p.Running:
		state = modelRebuilding
	case p.Rebuilding:
		state = modelInterrupted
	}
	return modelItem{p.Name, state, p.Generation, p.Consumer, p.Events, p.Checkpoint, p.Waiting, timeOf(p.StartedAt), timeOf(p.UpdatedAt)}
}

func (s *session) printModels(list []modelItem) error {
	interrupted := 0
	rows := make([][]string, len(list))
	for n := range list {
		p := &list[n]
		if p.State == modelInterrupted {
			interrupted++
		}
		rows[n] = []string{
			p.Name, p.State, strconv.FormatInt(p.Generation, 10), strconv.FormatInt(p.Events, 10), upTo(p.Waiting, 10_000),
			at(p.StartedAt), at(p.UpdatedAt), short(p.Checkpoint, 40),
		}
	}
	var err error
	switch {
	case s.json:
		err = s.document(list)
	case len(list) == 0:
		fmt.Fprintln(s.errs, "There is no read model.")
	default:
		err = s.table([]string{"PROJECTION", "STATE", "REBUILDS", "EVENTS", "WAITING", "STARTED", "UPDATED", "CHECKPOINT"}, rows)
	}
	if err == nil && interrupted > 0 {
		err = &exitError{exitFindings, fmt.Errorf("%s: have the service call Model.Resume",
			several(interrupted, "rebuild is interrupted", "rebuilds are interrupted"))}
	}
	return err
}
