"""Tables as CSV and TSV: features with labels, scores, interactions, lists of images."""

from __future__ import annotations

from target import fuzz, instrumented

with instrumented():
    from rankwise.data import TableSchema, read_images, read_interactions, read_scores, read_table

SEEDS = [
    b"a,b,ill\n1,2,0\n3,4,1\n5,6,0\n",
    b"size;round;cancer\n1.5;0.2;no\n2.5;0.1;yes\n",
    b"1\t2\t3\n4\t5\t6\n",
    b"user,prob,label\nann,.9,1\nbob,.2,0\nann,.4,0\n",
    b"user,item,stars,when\nann,7,5,1\nbob,9,3,2\n",
    b"path,label,split\nx.png,1,train\n",
    b'"a","b,c",ill\n"1","2",true\n1,NA,false\n',
    b"query_ids,x,y\n1,2,0\n1,3,1\n2,2,0\n",
]

SCHEMA = TableSchema(("b", "a"), "ill", None, ("a", "b", "ill"), classes=("no", "yes"), missing="median")
LISTS = TableSchema(("x",), "y", "query_ids", ("query_ids", "x", "y"), origins={"x": 1.7e9})

READERS = {
    "table.csv": read_table,
    "filled.csv": lambda path: read_table(path, missing="median", header="no"),
    "lists.csv": lambda path: read_table(path, query="query_ids"),
    "other.csv": lambda path: SCHEMA.read(path, labels="optional"),
    "others.csv": lambda path: LISTS.read(path, labels="optional"),
    "scores.csv": read_scores,
    "scores.tsv": read_scores,
    "pairs.csv": lambda path: read_interactions(path, rating=2, time=3, header="no"),
    "dots.csv": lambda path: read_interactions(path, separator="::"),
    "images.csv": read_images,
}

if __name__ == "__main__":
    fuzz(READERS, SEEDS)
