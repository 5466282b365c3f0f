package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/adopt"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/consumers"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/dead"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/events"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/failures"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/keys"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/status"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/stuck"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/version"
	"github.com/oncebox/oncebox/messaging/brokers"
)

// others says how to get the command for another broker. Pulsar is that of the main module.
func others(name string) string {
	if name == "pulsar" {
		return "run oncebox (go install github.com/oncebox/oncebox/cmd/oncebox@latest)"
	}
	return fmt.Sprintf("run oncebox-%[1]s (go install github.com/oncebox/oncebox/messaging/%[1]s/cmd/oncebox-%[1]s@latest)", name)
}

// run runs one command and returns its exit code. The first word of the line is the program, as in os.Args.
func run(ctx context.Context, t *cli.Terminal, kinds []brokers.Kind, line []string) int {
	s := &cli.Session{Terminal: t, Program: cli.Called(line[0]), Level: slog.LevelWarn}
	s.Brokers = brokers.Choice{Kinds: kinds, Flag: "--broker", Others: others}
	root := newRoot(s)
	root.SetArgs(line[1:])
	root.SetIn(t.In)
	root.SetOut(t.Out)
	root.SetErr(t.Errs)
	err := errors.Join(root.ExecuteContext(ctx), s.Close())
	if err == nil {
		return cli.ExitDone
	}
	s.Complain(cli.Renamed(root, err.Error()))
	if exit, ok := errors.AsType[*cli.ExitError](err); ok {
		return exit.Code
	}
	return cli.ExitFailed
}

func newRoot(s *cli.Session) *cobra.Command {
	root := cli.Group(s.Name(), "Show what is in the tables of oncebox, and act on dead letters and other things that wait",
		status.New(s), stuck.New(s), failures.New(s), events.NewShow(s), events.NewFind(s), dead.New(s), consumers.NewParked(s), consumers.New(s),
		events.NewDelayed(s), keys.New(s),
		events.NewLanes(s),
		events.NewTenants(s), newReconcile(s), newRetention(s), consumers.NewRebuild(s), newMigrate(s), newGrants(s), newDoctor(s), newRelay(s), adopt.New(s),
		version.New(s))
	// cobra would print an error with the help of the command. run prints it once, on a line of its own.
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(cli.Usage)
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) { s.Running = cmd }
	// Other settings have no flags: they come from the variables of the service, so that the command
	// works with the service's values.
	flags := root.PersistentFlags()
	flags.StringVar(&s.DatabaseURL, "database-url", "", "URL of the PostgreSQL database, in place of ONCEBOX_DATABASE_URL and DATABASE_URL")
	flags.StringVar(&s.Schema, "schema", "", "schema of oncebox's tables, in place of ONCEBOX_SCHEMA")
	flags.StringVar(&s.Broker, "broker", "", "name of the broker of the service, if its variables do not decide: "+s.Brokers.Built()+" or none")
	flags.BoolVar(&s.JSON, "json", false, "print one JSON document in place of tables")
	withoutFiles(root)
	named(root)
	return root
}

// named has the help of a command and of those below name the program. It is written with oncebox.
func named(cmd *cobra.Command) {
	for _, text := range []*string{&cmd.Short, &cmd.Long, &cmd.Example} {
		*text = cli.Renamed(cmd, *text)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = cli.Renamed(cmd, f.Usage) })
	for _, sub := range cmd.Commands() {
		named(sub)
	}
}

// withoutFiles keeps the shell from completing arguments with names of files: no command takes a file as an argument.
func withoutFiles(cmd *cobra.Command) {
	if len(cmd.ValidArgs) == 0 {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, sub := range cmd.Commands() {
		withoutFiles(sub)
	}
}
