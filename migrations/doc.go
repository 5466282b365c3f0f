// Package migrations holds the tables as numbered SQL files and brings a database up to them.
//
// The files name no schema: [Up] runs them with the search_path set to the one that is configured, and so can psql or
// any other tool that applies the files of [FS] in the order of their names.
//
// # Guarantees
//
// [Up] is one transaction under an advisory lock: it is applied wholly or not at all, however many processes start at
// once, and does nothing, and needs no rights, when the database is up to date. Files that were released never change.
//
// # Errors
//
// [Verify] returns [*MissingError] when the tables are not there or not up to date; it names the call that makes them.
package migrations
