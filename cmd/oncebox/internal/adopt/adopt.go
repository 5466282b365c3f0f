package adopt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/adopt"
)

// flags are those of the command.
type flags struct {
	from, file, source    string
	suggest, dryRun, once bool
	forward, stopForward  bool
	rows, batch           int
}

const long = `Move the unsent rows of an outbox table that the service has already into the outbox of oncebox. A relay publishes them from there. It runs until
it is stopped (SIGTERM), and moves what old code writes meanwhile. Any number of processes may run it.

A file says which column becomes which field of an event; --suggest prints one for a table, to be edited. --dry-run shows what would be moved where,
and leaves nothing behind. A row that no event can be made of stays in the table, with the rows behind it; the command then ends with code 3.

Switch the old publisher off first. --forward makes a trigger by which old and new code can write at the same time, in one order. From then on a row that
no event can be made of becomes a dead letter, behind which its key waits (oncebox dead). oncebox status and oncebox doctor report the table until
--stop-forwarding. The guides are in docs/migrating.`

// New makes the command adopt.
func New(s *cli.Session) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use: "adopt", Short: "Move the rows of an outbox table that the service has already into the outbox of oncebox", Args: cli.NoArgs,
		Long: long,
		Example: `  oncebox adopt --from app.outbox --suggest
  oncebox adopt --map adopt.yaml --dry-run
  oncebox adopt --map adopt.yaml
  oncebox adopt --map adopt.yaml --forward
  oncebox adopt --map adopt.yaml --once
  oncebox adopt --map adopt.yaml --stop-forwarding`,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, s) },
	}
	to := cmd.Flags()
	to.StringVar(&f.from, "from", "", "the table, for --suggest")
	to.StringVar(&f.file, "map", "", "the file with the mapping, in YAML")
	to.StringVar(&f.source, "source", "", "name of the service in the events, in place of ONCEBOX_SOURCE")
	to.BoolVar(&f.suggest, "suggest", false, "print a mapping for the table --from")
	to.BoolVar(&f.dryRun, "dry-run", false, "print what would be moved where, and leave nothing behind")
	to.BoolVar(&f.once, "once", false, "end when no row is left that can be moved")
	to.BoolVar(&f.forward, "forward", false, "move the rest and make a trigger that forwards each new row in the transaction of its writer")
	to.BoolVar(&f.stopForward, "stop-forwarding", false, "remove the trigger of --forward")
	to.IntVar(&f.rows, "rows", 10, "how many events --dry-run prints")
	to.IntVar(&f.batch, "batch-size", 500, "how many rows are moved in one transaction")
	cmd.MarkFlagsMutuallyExclusive("suggest", "dry-run", "once", "forward", "stop-forwarding")
	return cmd
}

// check refuses flags that do not fit together.
func (f *flags) check() error {
	switch {
	case f.suggest && f.from == "":
		return errors.New("--suggest needs --from, the table")
	case f.suggest && f.file != "":
		return errors.New("--suggest prints a mapping, and --map names one: leave one of them out")
	case !f.suggest && f.file == "":
		return errors.New("--map is missing: name the file with the mapping; --from TABLE --suggest prints one")
	case !f.suggest && f.from != "":
		return errors.New("--from is for --suggest: the mapping names the table")
	case f.rows < 0:
		return errors.New("--rows is below 0")
	default:
		return nil
	}
}

func (f *flags) run(cmd *cobra.Command, s *cli.Session) error {
	if err := f.check(); err != nil {
		return cli.Usage(cmd, err)
	}
	ctx := cmd.Context()
	if f.suggest {
		return f.printSuggestion(ctx, s)
	}
	mapping, err := readFile(f.file)
	if err != nil {
		return cli.Exit(cli.ExitUsage, err)
	}
	if !f.once && !f.dryRun && !f.forward && !f.stopForward { // it runs for days, as a relay does
		s.Level, s.Waits = slog.LevelInfo, true
	}
	if err := s.OpenTables(ctx); err != nil {
		return err
	}
	if f.source != "" {
		s.Cfg.Outbox.Source = f.source
	}
	if s.Cfg.Outbox.Source == "" && mapping.Source == "" {
		return cli.Usage(cmd, errors.New("the events need the name of their service: give --source, ONCEBOX_SOURCE, or source in the mapping"))
	}
	store := outbox.NewStore(s.DB, &s.Cfg.Outbox)
	mover, err := adopt.New(ctx, store, mapping, &adopt.Config{BatchSize: f.batch})
	if f.stopForward && errors.Is(err, adopt.ErrNoTable) { // it was dropped
		if err := adopt.Forget(ctx, store, mapping); err != nil {
			return err
		}
		return said(s, mapping.Table, "forgotten", "There is no table "+mapping.Table+". What was left of its adoption is removed.")
	}
	if err != nil {
		return err
	}
	switch {
	case f.dryRun:
		return f.preview(ctx, s, mover)
	case f.forward:
		if err := mover.Forward(ctx); err != nil {
			return err
		}
		return said(s, mapping.Table, "forwarding", "Rows of "+mapping.Table+" are forwarded by the transactions that write them.")
	case f.stopForward:
		if err := mover.StopForwarding(ctx); err != nil {
			return err
		}
		return said(s, mapping.Table, "not forwarding", "Rows of "+mapping.Table+" are not forwarded any more.")
	case f.once:
		sum, err := mover.Once(ctx)
		if err != nil {
			return err
		}
		return printSummary(s, sum)
	}
	if err := mover.Run(ctx); err != nil {
		return err
	}
	sum, err := mover.Summary(context.WithoutCancel(ctx)) // ctx has ended
	if err != nil {
		return err
	}
	return printSummary(s, sum)
}

func readFile(name string) (*adopt.Mapping, error) {
	file, err := os.Open(name) //nolint:gosec // the operator names it
	if err != nil {
		return nil, fmt.Errorf("--map: %w", err)
	}
	defer file.Close()
	mapping, err := adopt.Read(file)
	if err != nil {
		return nil, fmt.Errorf("--map %s: %w", name, err)
	}
	return mapping, nil
}

// printSuggestion prints YAML also with --json, because the output is a file that a person edits.
func (f *flags) printSuggestion(ctx context.Context, s *cli.Session) error {
	if err := s.Open(ctx); err != nil {
		return err
	}
	mapping, notes, err := adopt.Suggest(ctx, s.DB, f.from)
	if err != nil {
		return err
	}
	return mapping.WriteTo(s.Out, notes)
}

// said prints that a change was made.
func said(s *cli.Session, table, state, sentence string) error {
	if s.JSON {
		return s.Document(map[string]string{"table": table, "state": state})
	}
	_, err := fmt.Fprintln(s.Out, sentence)
	return err
}

// printSummary prints what was done. If rows are left, the error sets the exit code.
func printSummary(s *cli.Session, sum adopt.Summary) error {
	if s.JSON {
		if err := s.Document(sum); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(s.Out, "%s moved.\n", cli.Several(sum.Moved, "row was", "rows were"))
		if sum.Dead > 0 {
			fmt.Fprintf(s.Out, "%s of them: %s\n", cli.Several(sum.Dead, "dead letter was made", "dead letters were made"), s.Typed("dead", "list"))
		}
		if err := printProblems(s, sum.Problems); err != nil {
			return err
		}
	}
	if len(sum.Problems) == 0 {
		return nil
	}
	return cli.Exit(cli.ExitFindings, fmt.Errorf("%s left in the table: no event can be made of a row, or it is behind such a row",
		cli.Several(sum.Left, "row is", "rows are")))
}

func printProblems(s *cli.Session, problems []adopt.Problem) error {
	if len(problems) == 0 {
		return nil
	}
	rows := make([][]string, len(problems))
	for n, p := range problems {
		rows[n] = []string{p.Row, p.At, p.Reason}
	}
	return s.Table([]string{"ROW", "CTID", "PROBLEM"}, rows)
}

// event is an event as --dry-run prints it.
type event struct {
	ID         string            `json:"id"`
	Topic      string            `json:"topic"`
	Type       string            `json:"type"`
	Tenant     string            `json:"tenant"`
	Key        string            `json:"key"`
	Bytes      int               `json:"bytes"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	OccurredAt string            `json:"occurred_at"`
}

// preview is the JSON output of --dry-run.
type preview struct {
	First    []event            `json:"first"`
	Topics   []adopt.TopicCount `json:"topics"`
	Unmapped int64              `json:"unmapped"`
	Behind   int64              `json:"behind"`
	Problems []adopt.Problem    `json:"problems,omitempty"`
	Advice   []string           `json:"advice,omitempty"`
}

func (f *flags) preview(ctx context.Context, s *cli.Session, mover *adopt.Mover) error {
	p, err := mover.Preview(ctx, f.rows)
	if err != nil {
		return err
	}
	doc := preview{
		First: []event{}, Topics: append([]adopt.TopicCount{}, p.Topics...), Unmapped: p.Unmapped, Behind: p.Behind, Problems: p.Problems, Advice: p.Advice,
	}
	for i := range p.First {
		e := &p.First[i]
		doc.First = append(doc.First, event{e.ID, e.Topic, e.Type, e.TenantID, e.OrderingKey(), len(e.Payload), e.Metadata, cli.Moment(e.OccurredAt)})
	}
	if s.JSON {
		err = s.Document(doc)
	} else {
		err = doc.print(s)
	}
	if err == nil && p.Fault != nil {
		return p.Fault // as it would end the run
	}
	if err == nil && p.Unmapped > 0 {
		err = cli.Exit(cli.ExitFindings, fmt.Errorf("no event can be made of %s, and %s behind them",
			cli.Several(p.Unmapped, "row", "rows"), cli.Several(p.Behind, "row is", "rows are")))
	}
	return err
}

func (p *preview) print(s *cli.Session) error {
	for _, advice := range p.Advice {
		fmt.Fprintln(s.Errs, "note:", advice)
	}
	if len(p.Topics) == 0 && p.Unmapped == 0 {
		fmt.Fprintln(s.Errs, "No row is unsent.")
		return nil
	}
	var first, topics [][]string
	for _, e := range p.First {
		first = append(first, []string{e.OccurredAt, e.ID, e.Topic, e.Type, cli.Short(e.Key, 40), strconv.Itoa(e.Bytes)})
	}
	for _, t := range p.Topics {
		topics = append(topics, []string{t.Topic, strconv.FormatInt(t.Rows, 10)})
	}
	if err := s.Table([]string{"OCCURRED", "ID", "TOPIC", "TYPE", "KEY", "BYTES"}, first); err != nil {
		return err
	}
	fmt.Fprintln(s.Out)
	if err := s.Table([]string{"TOPIC", "ROWS"}, topics); err != nil {
		return err
	}
	if len(p.Problems) > 0 {
		fmt.Fprintln(s.Out)
	}
	return printProblems(s, p.Problems)
}
