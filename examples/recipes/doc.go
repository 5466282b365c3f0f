// Package recipes has the code of docs/recipes.md. Its tests run it.
package recipes
