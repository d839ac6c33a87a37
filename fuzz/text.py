"""LETOR lines, extreme classification lines, interaction lists, list sizes, ARFF files with their XML."""

from __future__ import annotations

from target import fuzz, instrumented

with instrumented():
    from rankwise.data import (
        TableSchema,
        read_arff,
        read_extreme,
        read_interaction_lists,
        read_letor,
        read_letor_comments,
        read_table,
    )
    from rankwise.data.columns import read_group_sizes

ARFF = b"@relation r\n@attribute loud numeric\n@attribute sad {0,1}\n@attribute fast {0,1}\n@data\n"
SEEDS = [
    b"2 qid:7 1:0.5 3:1.5 # doc 1\n0 qid:7 2:1\n",
    b"1 1:0.5 2:1e3\n0 1:.5 2:-1\n",
    b"1 qid:1 1:1 2:2\n" * 3,
    b"1 qid:1 1:1 2:1700000001\n0 qid:1 2:1700000002 3:1\n",
    b"2,1,qid\n1700000001,1,1\n",
    b"2 4 3\n0,2 1:0.5 3:2\n 0:1\n",
    b"0 10 30\n1 20\n",
    b"27\n3\n",
    ARFF + b"{0 0.5, 2 1}\n{1 1}\n",
    ARFF + b"0.5,0,1\n?,1,0\n",
    b'<labels><label name="sad"></label><label name="fast"/></labels>',
    b"\xef\xbb\xbf1 1:1\n",
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff\x33\x54\x30\xb4\x32\xe4\x02\x00\xa9\x3f\x5e\x1d\x06\x00\x00\x00",
]


def arff_labels(path):
    """The XML beside an ARFF file that is in order."""
    arff = path.with_name("songs.arff")
    arff.write_bytes(ARFF + b"1,0,1\n")
    return read_arff(arff, labels=path)


SCHEMA = TableSchema(("1", "2"), "label", "qid", ("1", "2", "label", "qid"), letor=True, origins={"2": 1.7e9})
READERS = {
    "lines.txt": read_letor,
    "learned.txt": read_table,
    "other.txt": lambda path: SCHEMA.read(path, labels="optional"),
    "comments.txt": read_letor_comments,
    "narrow.txt": lambda path: read_letor(path, features=3, block_bytes=16),
    "extreme.txt": read_extreme,
    "lists.txt": lambda path: read_interaction_lists([path]),
    "sizes.query": read_group_sizes,
    "two.arff": lambda path: read_arff(path, labels=2),
    "meka.arff": read_arff,
    "labels.xml": arff_labels,
}

if __name__ == "__main__":
    fuzz(READERS, SEEDS)
